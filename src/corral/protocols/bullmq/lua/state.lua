-- state: jobs with their fields and the state each is in.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [[id, fields, state on the wire], …] of those that exist
-- use states
local found = {}
for _, id in ipairs(ARGV) do
  -- what is no hash is no job
  local fields = redis.pcall("HGETALL", PREFIX .. id)
  if not fields.err and #fields > 0 then found[#found + 1] = {id, fields, state_of(id)} end
end
return found
