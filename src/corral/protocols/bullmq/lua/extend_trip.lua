-- extend_trip: renew the locks of all that one trip claimed, for a worker that has not read the answer yet.
-- KEYS     keys.fixed
-- ARGV[1]  receipt   ARGV[2] lock ms
-- Returns  how many were renewed
-- use queue
-- use trip
local ids = claimed_under(ARGV[1])
for _, id in ipairs(ids) do call("PEXPIRE", PREFIX .. id .. ":lock", ARGV[2]) end
in_chunks(ids, 1000, function(from, to) call("SREM", STALLED, unpack(ids, from, to)) end)
return #ids
