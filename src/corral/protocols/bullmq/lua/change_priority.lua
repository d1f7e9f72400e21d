-- change_priority: change a job's priority, and its position where it waits.
-- KEYS     keys.fixed
-- ARGV[1]  id   ARGV[2] priority   ARGV[3] 1 where it goes in front of its equals
-- Returns  0, or -1 the job does not exist
-- use queue
local id, priority, is_lifo = ARGV[1], tonumber(ARGV[2]), ARGV[3] == "1"
if call("EXISTS", PREFIX .. id) == 0 then return -1 end
local state = queue_state()
if call("ZREM", PRIORITIZED, id) == 1 or call("LREM", state.target, -1, id) == 1 then
  if priority == 0 then
    call(is_lifo and "RPUSH" or "LPUSH", state.target, id)
    wake(is_blocked(state))
  elseif is_lifo then
    call("ZADD", PRIORITIZED, priority * 4294967296, id)
  else
    call("ZADD", PRIORITIZED, priority_score(priority), id)
    wake(is_blocked(state))
  end
end
call("HSET", PREFIX .. id, "priority", priority)
return 0
