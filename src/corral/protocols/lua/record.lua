-- Write a worker's record, that its handlers are there, and add to the counts of an hour.
-- KEYS: the names of workers, the record, the hour's counts, when each job name last had a handler (ms)
-- ARGV: name, record, how long it is kept (ms), how long counts are kept (ms), counts packed as [field, count, ...],
--       fields to set packed as [field, value, ...], now ms, job names with a handler packed as [name, ...],
--       how long it is known when a name last had one (ms)
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[4])

local counts = cmsgpack.unpack(ARGV[5])
for index = 1, #counts, 2 do
  redis.call('HINCRBY', KEYS[3], counts[index], counts[index + 1])
end
local values = cmsgpack.unpack(ARGV[6])
if #values > 0 then
  redis.call('HSET', KEYS[3], unpack(values))
end
if #counts + #values > 0 then
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end

local now, kept = tonumber(ARGV[7]), tonumber(ARGV[9])
local names = cmsgpack.unpack(ARGV[8])
for _, name in ipairs(names) do
  redis.call('HSET', KEYS[4], name, ARGV[7])
end
redis.call('PEXPIRE', KEYS[4], ARGV[9])
if redis.call('HLEN', KEYS[4]) > 2 * #names + 100 then
  local known = redis.call('HGETALL', KEYS[4])
  for index = 1, #known, 2 do
    if now - (tonumber(known[index + 1]) or 0) > kept then redis.call('HDEL', KEYS[4], known[index]) end
  end
end
return 1
