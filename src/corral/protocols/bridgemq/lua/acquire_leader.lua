-- acquire_leader: become or stay the leader among schedulers, and lease the schedules that are due.
-- KEYS     .. [11] keys.fixed, then scheduler:lock scheduler:fence scheduler:leases scheduler:beat
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] scheduler id   ARGV[5] lease ms   ARGV[6] most schedules
-- ARGV[7]  ms after which a leader that does not beat any more is dead
-- Returns  number of this leadership (0: another leads), [[id, due ms, lease ms, JSON], …],
--          1 where there was a leader until now, else 0
-- use keys
-- use jobs
-- use leases
local LOCK, FENCE, BEAT = KEYS[FIXED + 1], KEYS[FIXED + 2], KEYS[FIXED + 4]
LEASES = KEYS[FIXED + 3]
local LOCK_S = 30

local leader, beating = call("GET", LOCK), call("GET", BEAT)

-- The beat lives as long as the lock, so what is left of its life says when it was written. A leader of another
-- client does not beat: only its lock counts.
local function is_dead()
  return beating == leader and LOCK_S * 1000 - call("PTTL", BEAT) > tonumber(ARGV[7])
end

if leader == ARGV[4] then
  call("EXPIRE", LOCK, LOCK_S)
elseif leader and not is_dead() then
  return {0, {}, 0}
else
  call("SET", LOCK, ARGV[4], "EX", LOCK_S)
  call("INCR", FENCE)
  return_leases()
end
call("SET", BEAT, ARGV[4], "EX", LOCK_S)

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
return {tonumber(call("GET", FENCE)), rows, beating and 1 or 0}
