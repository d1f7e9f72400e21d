-- The state of a job, in the contract's words.
-- use queue
local function state_of(id)
  if call("ZSCORE", COMPLETED, id) then return "completed" end
  if call("ZSCORE", FAILED, id) then return "failed" end
  if call("ZSCORE", DELAYED, id) then return "delayed" end
  if call("ZSCORE", PRIORITIZED, id) then return "prioritized" end
  if call("LPOS", ACTIVE, id) then return "active" end
  if call("LPOS", WAIT, id) or call("LPOS", PAUSED, id) then return "waiting" end
  if call("ZSCORE", WAITING_CHILDREN, id) then return "waiting-children" end
  return "unknown"
end
