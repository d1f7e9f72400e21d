-- ledger: run a verb unless a ledger knows some of its rows already; then nothing is written, and those are named.
-- KEYS[1]  the ledger: a set of row ids   KEYS[2] .. the verb's own
-- ARGV[1]  seconds the ledger is kept   ARGV[2] which of the verb's arguments holds its rows, as msgpack
--          [[id, …], …]   ARGV[3] .. the verb's own
-- Returns  "known", id, … of rows that were submitted before; or "new", how many, the verb's answer
local LEDGER = KEYS[1]
local ids, known = {}, {"known"}
for i, row in ipairs(cmsgpack.unpack(ARGV[2 + tonumber(ARGV[2])])) do
  ids[i] = row[1]
  if redis.call("SISMEMBER", LEDGER, row[1]) == 1 then known[#known + 1] = row[1] end
end
if #known > 1 then return known end

local function verb(KEYS, ARGV)
-- the verb
end

local function from(list, first)
  local rest = {}
  for i = first, #list do rest[i - first + 1] = list[i] end
  return rest
end

local answer = verb(from(KEYS, 2), from(ARGV, 3))
for i = 1, #ids, 1000 do redis.call("SADD", LEDGER, unpack(ids, i, math.min(i + 999, #ids))) end
if #ids > 0 then redis.call("EXPIRE", LEDGER, ARGV[1]) end
return {"new", #ids, answer}
