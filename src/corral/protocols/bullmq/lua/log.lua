-- log: append a line to a job's log.
-- KEYS     keys.fixed, then the job's lock
-- ARGV[1]  id   ARGV[2] receipt, or "" to skip the check   ARGV[3] line   ARGV[4] lines kept, or ""
-- ARGV[5]  mark, or ""   ARGV[6] ms a mark is kept
-- Returns  how many lines there are, or -1 the job does not exist, -2 no lock, -6 another attempt's lock
-- use queue
-- use lock
-- use marks
local code = held(ARGV[1], ARGV[2])
if code ~= 0 then return code end
local log = PREFIX .. ARGV[1] .. ":logs"
local is_new = not is_repeated(PREFIX .. ARGV[1] .. ":marks", ARGV[5], ARGV[6])
local lines = is_new and call("RPUSH", log, ARGV[3]) or call("LLEN", log)
local kept = tonumber(ARGV[4])
if not kept then return lines end
call("LTRIM", log, -kept, -1)
return math.min(lines, kept)
