-- emit: write an event of a handler's own.
-- KEYS     keys.fixed, then the job's lock
-- ARGV[1]  id   ARGV[2] receipt   ARGV[3] event name   ARGV[4] data as JSON
-- ARGV[5]  mark, or ""   ARGV[6] ms a mark is kept
-- Returns  0, or -1 the job does not exist, -2 no lock, -6 another attempt's lock
-- use queue
-- use lock
-- use marks
local code = held(ARGV[1], ARGV[2])
if code ~= 0 then return code end
if is_repeated(PREFIX .. ARGV[1] .. ":marks", ARGV[5], ARGV[6]) then return 0 end
call("XADD", EVENTS, "MAXLEN", "~", kept_events(queue_state()), "*", "event", ARGV[3], "jobId", ARGV[1],
     "data", ARGV[4])
return 0
