-- repeat_jobs: make the next job of each repeatable of an older generation whose job was claimed.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [[next ms, [key, envelope, data], …], …]: the first key that is there gets its job
--          (parts/adding)
-- Returns  [id or "", …]: "" where no such repeatable is there any more
-- use adding
local add, close = adding(queue_state())
local ids = {}
for i, given in ipairs(cmsgpack.unpack(ARGV[1])) do
  ids[i] = ""
  for n = 2, #given do
    local key, envelope, data = unpack(given[n])
    if call("ZSCORE", REPEAT, key) then
      call("ZADD", REPEAT, given[1], key)
      envelope[11] = key
      ids[i] = add(envelope, data)
      break
    end
  end
end
close()
return ids
