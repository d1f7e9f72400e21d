-- hold_members: take members out of the lists and sorted sets of another library, so that nobody claims them.
-- KEYS[1]  the run   KEYS[2] the held members
-- ARGV[1]  id of the run   ARGV[2] batch
-- ARGV[3]  msgpack [[id, key, left, right or zset, member, key that exists while it is active or "", [key of its record, …]], …]
-- Returns  for each [receipt], or why not: active, gone; nothing where the run has ended
local call = redis.call
if call("HGET", KEYS[1], "id") ~= ARGV[1] then return false end

-- Returns the score of a member that was taken, "" in a list; nil where it is not there.
local function take(key, kind, member)
  if kind == "zset" then
    local score = call("ZSCORE", key, member)
    if score then call("ZREM", key, member) end
    return score or nil
  end
  return call("LREM", key, kind == "left" and 1 or -1, member) > 0 and "" or nil
end

local answers = {}
for number, row in ipairs(cmsgpack.unpack(ARGV[3])) do
  local id, key, kind, member, active, records = unpack(row)
  if active ~= "" and call("EXISTS", active) == 1 then
    answers[number] = "active"
  else
    local score = take(key, kind, member)
    if score then
      local receipt = cmsgpack.pack({ARGV[2], kind, score, id, key, member, records})
      call("ZADD", KEYS[2], call("HINCRBY", KEYS[1], "sequence", 1), receipt)
      answers[number] = {receipt}
    else
      answers[number] = "gone"
    end
  end
end
return answers
