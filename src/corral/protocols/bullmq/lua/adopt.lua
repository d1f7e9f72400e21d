-- adopt: return what one trip claimed under a receipt, to the worker that lost the answer. A trip that has not
-- arrived yet claims nothing when it does: its receipt is marked as given up.
-- KEYS     keys.fixed
-- ARGV[1]  receipt   ARGV[2] ms for which the note is kept
-- Returns  [[id, fields], …]
-- use queue
-- use trip
-- use chain
local claims = {}
call("SET", PREFIX .. "given-up:" .. ARGV[1], 1, "PX", ARGV[2])
for position, id in ipairs(claimed_under(ARGV[1])) do
  local job = PREFIX .. id
  local fields = call("HGETALL", job)
  if call("HEXISTS", job, "chained") == 1 then add_given(job, fields) end
  claims[position] = {id, fields}
end
return claims
