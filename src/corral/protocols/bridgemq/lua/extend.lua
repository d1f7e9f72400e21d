-- extend: renew the locks of claims that are still held, and the lifetime of the worker's heartbeat.
-- KEYS     .. [11] keys.fixed, then lock and fence of each job
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] lock ms   ARGV[5] heartbeat ms   ARGV[6] msgpack [[id, fence], …]
-- Returns  [0 | code | -1 where it should be cancelled, …]
-- use keys
-- use settle
-- use heartbeat
local rows = cmsgpack.unpack(ARGV[6])
local codes = held_of(rows)
-- a full server refuses SET as the first write of a script, and every running job would lose its lock;
-- PEXPIRE takes no memory
if call("PEXPIRE", ROOT .. "workers:heartbeat:" .. WORKER, ARGV[5]) == 0 then beat(ARGV[5], "") end
for position, row in ipairs(rows) do
  if codes[position] == 0 then
    call("PEXPIRE", KEYS[FIXED + 2 * position - 1], ARGV[4])
    if call("SISMEMBER", CANCELLING, row[1]) == 1 then codes[position] = -1 end
  end
end
return codes
