-- relock: a claim is held under another name from now on.
-- KEYS[1]  lock of the job
-- ARGV[1]  the name it is held under   ARGV[2] the name it shall be held under
-- Returns  1, or 0 where it is not held under that name
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
local left = redis.call("PTTL", KEYS[1])
if left > 0 then
  redis.call("SET", KEYS[1], ARGV[2], "PX", left)
else
  redis.call("SET", KEYS[1], ARGV[2])
end
return 1
