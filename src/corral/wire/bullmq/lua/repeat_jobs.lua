-- repeat_jobs: make the next job of each repeatable of an older generation whose job was claimed.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [[next ms, [key, row], …], …]: the first key that is there gets its row (parts/adding)
-- Returns  [id or "", …]: "" where no such repeatable is there any more
-- use adding
local add, close = adding(queue_state(), false)
local ids = {}
for i, given in ipairs(cmsgpack.unpack(ARGV[1])) do
  ids[i] = ""
  for n = 2, #given do
    local key, row = given[n][1], given[n][2]
    if call("ZSCORE", REPEAT, key) then
      call("ZADD", REPEAT, given[1], key)
      row[12] = key
      ids[i] = add(i, row)
      break
    end
  end
end
close()
return ids
