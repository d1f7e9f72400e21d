-- report: write a handler's event while its claim is held.
-- KEYS     jobs:stream jobs:events, then hash and events of the job
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] entry   ARGV[7] deliveries   ARGV[8] id   ARGV[9] task
-- ARGV[10] type   ARGV[11] step   ARGV[12] data   ARGV[13] mark, or ""   ARGV[14] ms a mark is kept
-- ARGV[15] .. fields of the hash and their values
-- Returns  0 | code
-- use ownership
-- use marks
local id = ARGV[8]
local code = held(ARGV[6], WORKER, tonumber(ARGV[7]))
if code ~= 0 then return code end
local known = read_job(id, "status", "ttl_s")
if not known[1] then return GONE end
-- after a final event nobody reads on
if known[1] == "canceled" then return CANCELED end
if OVER[known[1]] then return ENDED end
if is_repeated(JOB .. id .. ":marks", ARGV[13], ARGV[14]) then return 0 end
emit(id, ARGV[9], held_lifetime(known[2]), ARGV[10], NOW, ARGV[11], ARGV[12])
call("HSET", JOB .. id, "updated_ts", NOW, unpack(ARGV, 15))
return 0
