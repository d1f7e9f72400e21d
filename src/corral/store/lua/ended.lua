-- ended: read the hashes of jobs that have ended, and only those.
-- KEYS     the hash of each job
-- ARGV[1]  a field of every job   ARGV[2] the field that shows the end
-- ARGV[3]  its values that do, each between spaces; "" for any   ARGV[4] .. the fields to read
-- Returns  for each job its fields; 0 where it has not ended, -1 where it does not exist
local fields = {}
for position = 4, #ARGV do fields[#fields + 1] = ARGV[position] end
local rows = {}
for position, key in ipairs(KEYS) do
  local known = redis.call("HMGET", key, ARGV[1], ARGV[2])
  if not known[1] then
    rows[position] = -1
  elseif known[2] and (ARGV[3] == "" or string.find(ARGV[3], " " .. known[2] .. " ", 1, true)) then
    rows[position] = redis.call("HMGET", key, unpack(fields))
  else
    rows[position] = 0
  end
end
return rows
