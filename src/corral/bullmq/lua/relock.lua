-- relock: replace the lock value of a claimed job, keeping its expiry.
-- KEYS[1]  lock of the job
-- ARGV[1]  the present lock value   ARGV[2] the new one
-- Returns  1, or 0 if the job is not held under the present value
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
redis.call("SET", KEYS[1], ARGV[2], "KEEPTTL")
return 1
