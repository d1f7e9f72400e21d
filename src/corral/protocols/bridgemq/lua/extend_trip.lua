-- extend_trip: renew the locks of all that one trip claimed, for a worker that has not read the answer yet.
-- KEYS     .. [11] keys.fixed, then trips:BROKER
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] number of the trip   ARGV[5] lock ms
-- Returns  how many were renewed
-- use keys
-- use trip
local renewed = 0
for _, claim in ipairs(claims_of(KEYS[FIXED + 1], ARGV[4]) or {}) do
  local id, fence = claim[1], claim[2]
  local lock = JOBS .. "lock:" .. id
  local known = call("MGET", lock, JOBS .. "fence:" .. id)
  if known[1] == WORKER and tonumber(known[2] or 0) == fence then renewed = renewed + call("PEXPIRE", lock, ARGV[5]) end
end
return renewed
