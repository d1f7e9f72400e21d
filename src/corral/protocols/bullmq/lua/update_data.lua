-- update_data: replace a job's data.
-- KEYS     keys.fixed
-- ARGV[1]  id   ARGV[2] data as JSON
-- Returns  0, or -1 the job does not exist
-- use queue
if call("EXISTS", PREFIX .. ARGV[1]) == 0 then return -1 end
call("HSET", PREFIX .. ARGV[1], "data", ARGV[2])
return 0
