-- finish_run: delete the record of a move that holds no jobs.
-- KEYS[1]  the run   KEYS[2] the held jobs
-- ARGV[1]  its id
-- Returns  1 deleted, 0 it holds jobs, or another one is recorded
if redis.call("HGET", KEYS[1], "id") ~= ARGV[1] or redis.call("ZCARD", KEYS[2]) > 0 then return 0 end
return redis.call("DEL", KEYS[1])
