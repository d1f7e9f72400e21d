-- emit: write an event of a handler's own.
-- KEYS     keys.fixed, then the job's lock
-- ARGV[1]  id   ARGV[2] receipt   ARGV[3] event name   ARGV[4] data as JSON
-- Returns  0, or -1 the job does not exist, -2 no lock, -6 another attempt's lock
-- use queue
-- use lock
local code = held(ARGV[1], ARGV[2])
if code ~= 0 then return code end
call("XADD", EVENTS, "MAXLEN", "~", kept_events(queue_state()), "*", "event", ARGV[3], "jobId", ARGV[1],
     "data", ARGV[4])
return 0
