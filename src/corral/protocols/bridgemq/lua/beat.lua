-- beat: this worker is alive, or says good-bye.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/names   ARGV[4] heartbeat ms, or "" for good-bye   ARGV[5] metadata
-- Returns  0
-- use names
-- use beating
if ARGV[4] ~= "" then
  beat(ARGV[4], ARGV[5])
else
  call("SREM", ROOT .. "workers:active", SPEAKER)
  call("DEL", ROOT .. "workers:heartbeat:" .. SPEAKER, ROOT .. "workers:" .. SPEAKER)
end
return 0
