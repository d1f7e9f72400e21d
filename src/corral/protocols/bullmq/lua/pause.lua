-- pause: pause or resume the queue.
-- KEYS     keys.fixed
-- ARGV[1]  "paused" or "resumed"   ARGV[2] 1 where this call goes on with the one before, else ""
-- Returns  how many jobs are still in the list that they are to leave
-- use queue
local MOST = 5000 -- jobs moved in one call where both lists exist
local pausing, six = ARGV[1] == "paused", is_six(queue_state())
local from, to = PAUSED, WAIT
if pausing then from, to = WAIT, PAUSED end
-- a queue of BullMQ 6 has no jobs in `paused`, unless it was of 5 before
local moved = not (six and pausing) and call("EXISTS", from) == 1
local left = 0
if moved and call("EXISTS", to) == 0 then
  call("RENAME", from, to)
elseif moved then
  -- clients of two generations have used this queue: RENAME would delete the jobs of one of them
  local ids = call("LRANGE", from, 0, MOST - 1)
  call("RPUSH", to, unpack(ids))
  call("LTRIM", from, #ids, -1)
  left = call("LLEN", from)
end

if pausing then
  call("HSET", META, "paused", 1)
  call("DEL", MARKER)
else
  call("HDEL", META, "paused")
  if moved or call("ZCARD", PRIORITIZED) > 0 or (six and call("EXISTS", WAIT) == 1)
     or call("EXISTS", PREFIX .. "grouped") == 1 then
    wake(false)
  else
    wake_when_due()
  end
end
if ARGV[2] == "" then call("XADD", EVENTS, "*", "event", ARGV[1]) end
return left
