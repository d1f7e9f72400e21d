-- Add one firing of a schedule as a job of its own; false where it was added before.
-- use jobs
local function fire(id, raw, job, priority)
  if call("EXISTS", JOBS .. "data:" .. id, JOBS .. "status:" .. id) > 0 then return false end
  call("SET", JOBS .. "data:" .. id, raw)
  enter_waiting(id, priority)
  emit("added", id, job, "", "to", "waiting")
  return true
end
