-- iterate_legacy: make the next job of each repeatable of an older version whose job was claimed.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [[next ms, [key, envelope, data], …], …]: the first key that exists gets its job
--          (parts/add_job)
-- Returns  [id or "", …]: "" where no such repeatable exists, and in BullMQ 6, which ends them
-- use add_job
local state = queue_state()
local add, close = adding(state)
local ids = {}
for i, row in ipairs(cmsgpack.unpack(ARGV[1])) do
  ids[i] = ""
  for n = 2, #row do
    local key, envelope, data = unpack(row[n])
    if not is_six(state) and call("ZSCORE", REPEAT, key) then
      call("ZADD", REPEAT, row[1], key)
      envelope[11] = key
      ids[i] = add(envelope, data)
      break
    end
  end
end
close()
return ids
