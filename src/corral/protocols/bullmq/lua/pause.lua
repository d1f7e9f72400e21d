-- pause: pause or resume the queue.
-- KEYS     keys.fixed
-- ARGV[1]  "paused" or "resumed"
-- Returns  1
-- use queue
local pausing = ARGV[1] == "paused"
local from, to = PAUSED, WAIT
if pausing then from, to = WAIT, PAUSED end
local moved = call("EXISTS", from) == 1
if moved then call("RENAME", from, to) end

if pausing then
  call("HSET", META, "paused", 1)
  call("DEL", MARKER)
else
  call("HDEL", META, "paused")
  if moved or call("ZCARD", PRIORITIZED) > 0 then
    wake(false)
  else
    wake_when_due()
  end
end
call("XADD", EVENTS, "*", "event", ARGV[1])
return 1
