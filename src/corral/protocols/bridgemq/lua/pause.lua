-- pause: pause or resume a queue.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue   ARGV[5] "paused" or "resumed"
-- Returns  1 where that changed something, else 0
-- use keys
-- use jobs
local changed = call(ARGV[5] == "paused" and "SADD" or "SREM", PAUSED, ARGV[4])
if changed == 1 then
  call("SADD", KNOWN, ARGV[4])
  try("XADD", EVENTS, "MAXLEN", "~", kept_events(), "*", "event", ARGV[5], "at", NOW, "queue", ARGV[4])
end
return changed
