-- end_hold: delete the records of held members that have arrived elsewhere, or put the members back.
-- KEYS[1]  the run   KEYS[2] the held members
-- ARGV[1]  drop or restore   ARGV[2…] receipts, in the order in which they were held
-- Returns  how many of them were held
local call = redis.call
local ended = 0
-- the last first: each of them goes in front of those behind it
for position = #ARGV, 2, -1 do
  if call("ZREM", KEYS[2], ARGV[position]) == 1 then
    local _, kind, score, _, key, member, records = unpack(cmsgpack.unpack(ARGV[position]))
    if ARGV[1] == "drop" then
      if #records > 0 then call("DEL", unpack(records)) end
      if call("EXISTS", KEYS[1]) == 1 then call("HINCRBY", KEYS[1], "moved", 1) end
    elseif kind == "zset" then
      call("ZADD", key, score, member)
    else
      call(kind == "left" and "LPUSH" or "RPUSH", key, member)
    end
    ended = ended + 1
  end
end
return ended
