-- read_jobs: jobs with their fields and states.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [[id, fields, state on the wire], …] of those that exist; where a listed id is another kind of key, the
--          server's error in place of the fields
-- use job_state
local rows = {}
for _, id in ipairs(ARGV) do
  local fields = redis.pcall("HGETALL", PREFIX .. id)
  if fields.err then
    local state = state_of(id)
    if state ~= "unknown" then rows[#rows + 1] = {id, fields.err, state} end
  elseif #fields > 0 then
    rows[#rows + 1] = {id, fields, state_of(id)}
  end
end
return rows
