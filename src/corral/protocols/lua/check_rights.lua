-- check_rights: try the commands that a move needs, on a key that is deleted again.
-- KEYS[1]  a key that does not exist
-- Returns  the server's error, or nothing
local COMMANDS = {
  {{"HSET", "a", "1"}, {"HGET", "a"}, {"HINCRBY", "a", 1}, {"HGETALL"}, {"HDEL", "b"}},
  {{"LPUSH", "a"}, {"RPUSH", "b"}, {"LRANGE", 0, -1}, {"LPOS", "a"}, {"LREM", 1, "c"}, {"LTRIM", 0, 5}},
  {{"ZADD", 1, "a"}, {"ZSCORE", "a"}, {"ZRANGE", 0, -1}, {"ZREM", "b"}, {"ZCARD"}},
  {{"XADD", "*", "a", "1"}, {"XRANGE", "-", "+"}, {"XTRIM", "MAXLEN", 1}, {"XDEL", "1-1"}},
  {{"SADD", "a"}, {"SREM", "b"}},
  {{"SET", "1"}, {"GET"}, {"INCR"}, {"EXPIRE", 60}, {"EXISTS"}, {"PTTL"}},
}
for _, commands in ipairs(COMMANDS) do
  local failure
  for _, command in ipairs(commands) do
    local answer = redis.pcall(command[1], KEYS[1], unpack(command, 2))
    if type(answer) == "table" and answer.err then failure = failure or answer.err end
  end
  local deleted = redis.pcall("DEL", KEYS[1])
  if type(deleted) == "table" and deleted.err then failure = failure or deleted.err end
  if failure then return failure end
end
return false
