-- adopt: return what one trip claimed under a receipt, to the worker that lost the answer. A trip that has not
-- arrived yet claims nothing when it does: its receipt is marked as given up.
-- KEYS     keys.fixed
-- ARGV[1]  receipt   ARGV[2] ms for which the note is kept
-- Returns  [[id, fields], …]
-- use queue
local active = call("LRANGE", ACTIVE, 0, -1)
local claims = {}
call("SET", PREFIX .. "given-up:" .. ARGV[1], 1, "PX", ARGV[2])
for from = 1, #active, 1000 do
  local names = {}
  for i = from, math.min(from + 999, #active) do names[#names + 1] = PREFIX .. active[i] .. ":lock" end
  for i, lock in ipairs(call("MGET", unpack(names))) do
    if lock == ARGV[1] then
      local id = active[from + i - 1]
      claims[#claims + 1] = {id, call("HGETALL", PREFIX .. id)}
    end
  end
end
return claims
