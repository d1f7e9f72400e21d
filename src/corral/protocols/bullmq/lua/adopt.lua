-- adopt: return what one trip claimed under a receipt, to the worker that lost the answer. A trip that has not
-- arrived yet claims nothing when it does: its receipt is marked as given up.
-- KEYS     keys.fixed
-- ARGV[1]  receipt   ARGV[2] ms for which the note is kept
-- Returns  [[id, fields], …]
-- use queue
-- use trip
local claims = {}
call("SET", PREFIX .. "given-up:" .. ARGV[1], 1, "PX", ARGV[2])
for position, id in ipairs(claimed_under(ARGV[1])) do claims[position] = {id, call("HGETALL", PREFIX .. id)} end
return claims
