-- change_delay: change when a delayed job is due.
-- KEYS     keys.fixed
-- ARGV[1]  id   ARGV[2] now ms   ARGV[3] delay ms
-- Returns  0, or -1 the job does not exist, -3 it is not delayed
-- use queue
local id, delay = ARGV[1], tonumber(ARGV[3])
if call("EXISTS", PREFIX .. id) == 0 then return -1 end
if not call("ZSCORE", DELAYED, id) then return -3 end
local due = tonumber(ARGV[2]) + delay
-- computed while the job still has its old score
local score = delayed_score(due)
call("HSET", PREFIX .. id, "delay", delay)
call("ZADD", DELAYED, score, id)
call("XADD", EVENTS, "MAXLEN", "~", kept_events(queue_state()), "*", "event", "delayed", "delay", due,
     "jobId", id) -- jobId last: it is no retry
wake_when_due()
return 0
