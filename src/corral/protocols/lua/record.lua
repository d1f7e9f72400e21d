-- Write a worker's record and add to the counts of an hour.
-- KEYS: the names of workers, the record, the hour's counts
-- ARGV: name, record, how long it is kept (ms), how long counts are kept (ms), counts packed as [field, count, ...],
--       fields to set packed as [field, value, ...]
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
return 1
