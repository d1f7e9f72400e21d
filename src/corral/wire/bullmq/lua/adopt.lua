-- adopt: what one trip claimed under a receipt, for the worker that never saw the answer.
-- KEYS     keys.fixed
-- ARGV[1]  receipt
-- Returns  [[id, fields], …]
-- use queue
local active = call("LRANGE", ACTIVE, 0, -1)
local claims = {}
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
