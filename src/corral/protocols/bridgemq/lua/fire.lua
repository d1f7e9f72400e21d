-- fire: add the firings of leased schedules, and set when they are due again.
-- KEYS     .. [11] keys.fixed, then scheduler:lock scheduler:fence scheduler:leases scheduler:beat
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] scheduler id   ARGV[5] number of its leadership
-- ARGV[6]  msgpack [[schedule id, due ms, lease ms, next due ms or false, type, queue, priority, [[id, JSON], …],
--          why it cannot be read or ""], …]
-- Returns  how many jobs were added, or -1 where this scheduler does not lead any more: then nothing was written
-- use keys
-- use fire_job
-- use leases
local RESULT_S = 86400
LEASES = KEYS[FIXED + 3]
if call("GET", KEYS[FIXED + 1]) ~= ARGV[4] or call("GET", KEYS[FIXED + 2]) ~= ARGV[5] then return -1 end

local added = 0
for _, row in ipairs(cmsgpack.unpack(ARGV[6])) do
  local id, due, lease, next_due = row[1], row[2], row[3], row[4]
  local score = call("ZSCORE", CRON, id)
  -- it may have been rescheduled, paused, removed or taken over meanwhile
  if score and tonumber(score) == lease and lease_of(id, lease) == due then
    for _, firing in ipairs(row[8]) do
      if fire(firing[1], firing[2], {type = row[5], queue = row[6]}, row[7]) then added = added + 1 end
    end
    if next_due then
      call("ZADD", CRON, next_due, id)
    else
      call("ZREM", CRON, id)
    end
    call("HDEL", LEASES, id)
    if row[9] ~= "" then dead_letter(id, {type = row[5], queue = row[6]}, row[9], "InvalidSchedule", RESULT_S) end
  end
end
return added
