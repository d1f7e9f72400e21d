-- adopt: return what one trip claimed, to the worker that lost the answer.
-- KEYS     .. [11] keys.fixed, then trips:BROKER
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] number of the trip, or "" with one claim's id in ARGV[5], fence in ARGV[6]
-- Returns  [claimed row, …] as in turn
-- use keys
-- use jobs
-- use trip
local TRIP = KEYS[FIXED + 1]
local noted = {{ARGV[5], tonumber(ARGV[6])}}
if ARGV[4] ~= "" then
  noted = claims_of(TRIP, ARGV[4])
  if not noted then
    -- the trip has not arrived, or claimed nothing; if it still arrives, it finds itself given up
    noted = {}
    call("HSET", TRIP, "given_up", ARGV[4])
    call("EXPIRE", TRIP, 3600)
  end
end

local rows = {}
for _, claim in ipairs(noted) do
  local id, fence = claim[1], claim[2]
  local known = call("MGET", JOBS .. "lock:" .. id, JOBS .. "fence:" .. id, JOBS .. "data:" .. id, JOBS .. "attempts:" .. id)
  if known[1] == WORKER and tonumber(known[2] or 0) == fence and known[3] and call("SISMEMBER", ACTIVE, id) == 1 then
    local failure = try("HGETALL", JOBS .. "failure:" .. id)
    rows[#rows + 1] = {id, known[3], known[4] or "0", fence, failure.err and {} or failure}
  end
end
return rows
