-- The state of a job, in the contract's words.
-- use queue
-- A list of another type, which only a foreign client can have made, has no jobs.
local function has(command, key, id)
  local place = redis.pcall(command, key, id)
  return place and not (type(place) == "table" and place.err)
end

local function state_of(id)
  if has("ZSCORE", COMPLETED, id) then return "completed" end
  if has("ZSCORE", FAILED, id) then return "failed" end
  if has("ZSCORE", DELAYED, id) then return "delayed" end
  if has("ZSCORE", PRIORITIZED, id) then return "prioritized" end
  if has("LPOS", ACTIVE, id) then return "active" end
  if has("ZSCORE", PREFIX .. "grouped", id) then return "waiting" end
  if has("LPOS", WAIT, id) or has("LPOS", PAUSED, id) then return "waiting" end
  if has("ZSCORE", WAITING_CHILDREN, id) then return "waiting-children" end
  return "unknown"
end
