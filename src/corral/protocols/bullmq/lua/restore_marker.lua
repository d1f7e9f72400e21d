-- restore_marker: set the marker again after a worker took it and could not use it.
-- KEYS     keys.fixed
-- Returns  1
-- use queue
local state = queue_state()
if not is_blocked(state) then
  if call("LLEN", WAIT) > 0 or call("ZCARD", PRIORITIZED) > 0 then
    wake(false)
  else
    wake_when_due()
  end
end
return 1
