-- set_due: set a schedule's next firing ("+inf" pauses it).
-- KEYS     .. [11] keys.fixed, then scheduler:leases
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] id   ARGV[5] next firing ms, or "+inf"
-- Returns  1, or 0 where there is no such schedule
-- use keys
if not call("ZSCORE", CRON, ARGV[4]) then return 0 end
call("ZADD", CRON, ARGV[5], ARGV[4])
call("HDEL", KEYS[FIXED + 1], ARGV[4])
return 1
