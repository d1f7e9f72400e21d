-- Jobs of a chain: the field `chained` names the field of their data that takes the result of the job before.

-- Add that result to a job's fields, as `given`; returns its bytes.
local function add_given(job, fields)
  local result = call("HGETALL", job .. ":processed")[2]
  if not result then return 0 end
  fields[#fields + 1] = "given"
  fields[#fields + 1] = result
  return #result
end
