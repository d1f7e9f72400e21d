-- move_jobs: put completed, failed or delayed jobs back in the queue, whatever their priority.
-- KEYS     keys.fixed
-- ARGV[1]  completed, failed or delayed   ARGV[2] most jobs   ARGV[3] highest score
-- Returns  how many were moved
-- use queue
-- use parents
local FIELDS = {completed = "returnvalue", failed = "failedReason"}
local set, state = PREFIX .. ARGV[1], queue_state()
local ids = call("ZRANGEBYSCORE", set, 0, ARGV[3], "LIMIT", 0, ARGV[2])
if #ids == 0 then return 0 end
local field = FIELDS[ARGV[1]]
if field then
  for _, id in ipairs(ids) do
    call("HDEL", PREFIX .. id, "finishedOn", "processedOn", field)
    if is_six(state) then parents_of(state).wait_again(PREFIX .. id, ARGV[1]) end
  end
end
call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state))
for _, id in ipairs(ids) do
  call("XADD", EVENTS, "*", "event", "waiting", "jobId", id, "prev", ARGV[1])
end
in_chunks(ids, 5000, function(from, to)
  call("ZREM", set, unpack(ids, from, to))
  call("LPUSH", state.target, unpack(ids, from, to))
end)
wake(is_blocked(state))
return #ids
