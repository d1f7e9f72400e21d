-- begin_run: record a move of jobs from a queue, unless one is recorded.
-- KEYS[1]  the run
-- ARGV     field, value, …
-- Returns  the fields of the recorded run
if redis.call("EXISTS", KEYS[1]) == 0 then redis.call("HSET", KEYS[1], unpack(ARGV)) end
return redis.call("HGETALL", KEYS[1])
