-- take: let jobs of one name begin, as many as their limit allows.
-- KEYS[1]  how many have begun in this window, expiring with it
-- ARGV[1]  most in a window   ARGV[2] window ms   ARGV[3] want
-- Returns  how many may begin, ms until the window ends
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
local granted = math.max(math.min(tonumber(ARGV[3]), tonumber(ARGV[1]) - used), 0)
if granted > 0 then
  redis.call('INCRBY', KEYS[1], granted)
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  left = tonumber(ARGV[2])
end
return {granted, left}
