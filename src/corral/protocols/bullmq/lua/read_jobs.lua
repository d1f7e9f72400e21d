-- read_jobs: jobs with their fields and states.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [[id, fields, state on the wire], …] of those that exist
-- use job_state
local rows = {}
for _, id in ipairs(ARGV) do
  -- another kind of key is no job
  local fields = redis.pcall("HGETALL", PREFIX .. id)
  if not fields.err and #fields > 0 then rows[#rows + 1] = {id, fields, state_of(id)} end
end
return rows
