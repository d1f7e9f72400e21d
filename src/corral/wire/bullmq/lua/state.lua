-- state: jobs with their fields and the state each is in.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [[id, fields, state on the wire], …] of those that exist
-- use queue
local function state_of(id)
  if call("ZSCORE", COMPLETED, id) then return "completed" end
  if call("ZSCORE", FAILED, id) then return "failed" end
  if call("ZSCORE", DELAYED, id) then return "delayed" end
  if call("ZSCORE", PRIORITIZED, id) then return "prioritized" end
  if call("LPOS", ACTIVE, id) then return "active" end
  if call("LPOS", WAIT, id) or call("LPOS", PAUSED, id) then return "waiting" end
  if call("ZSCORE", PREFIX .. "waiting-children", id) then return "waiting-children" end
  return "unknown"
end

local found = {}
for _, id in ipairs(ARGV) do
  local fields = call("HGETALL", PREFIX .. id)
  if #fields > 0 then found[#found + 1] = {id, fields, state_of(id)} end
end
return found
