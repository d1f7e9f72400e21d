-- beat: record a worker's heartbeat, or deregister it.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] heartbeat ms, or "" to deregister   ARGV[5] metadata
-- Returns  0
-- use keys
-- use heartbeat
if ARGV[4] ~= "" then
  beat(ARGV[4], ARGV[5])
else
  call("SREM", ROOT .. "workers:active", WORKER)
  call("DEL", ROOT .. "workers:heartbeat:" .. WORKER, ROOT .. "workers:" .. WORKER)
end
return 0
