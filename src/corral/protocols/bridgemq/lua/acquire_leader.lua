-- acquire_leader: become or stay the leader among schedulers, and lease the schedules that are due.
-- KEYS     .. [11] keys.fixed, then scheduler:lock scheduler:fence scheduler:leases
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] scheduler id   ARGV[5] lease ms   ARGV[6] most schedules
-- Returns  number of this leadership (0: another leads), [[id, due ms, lease ms, JSON], …]
-- use keys
-- use jobs
-- use leases
local LOCK, FENCE = KEYS[FIXED + 1], KEYS[FIXED + 2]
LEASES = KEYS[FIXED + 3]
local LOCK_S = 30

local leader = call("GET", LOCK)
if leader == ARGV[4] then
  call("EXPIRE", LOCK, LOCK_S)
elseif leader then
  return {0, {}}
else
  call("SET", LOCK, ARGV[4], "NX", "EX", LOCK_S)
  call("INCR", FENCE)
end

local rows = {}
for _, taken in ipairs(lease_due(tonumber(ARGV[6]), tonumber(ARGV[5]))) do
  local raw = load_job(taken.id)
  if raw then
    rows[#rows + 1] = {taken.id, integer(taken.due), integer(taken.lease), raw}
  else
    call("ZREM", CRON, taken.id)
    call("HDEL", LEASES, taken.id)
  end
end
return {tonumber(call("GET", FENCE)), rows}
