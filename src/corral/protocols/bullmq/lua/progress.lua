-- progress: write the progress of a job, and an event of it.
-- KEYS     keys.fixed, then the job's lock
-- ARGV[1]  id   ARGV[2] receipt, or "" to skip the check   ARGV[3] progress as JSON
-- Returns  0, or -1 the job does not exist, -2 no lock, -6 another attempt's lock
-- use queue
-- use lock
local code = held(ARGV[1], ARGV[2])
if code ~= 0 then return code end
call("HSET", PREFIX .. ARGV[1], "progress", ARGV[3])
call("XADD", EVENTS, "MAXLEN", "~", kept_events(queue_state()), "*", "event", "progress", "jobId", ARGV[1],
     "data", ARGV[3])
return 0
