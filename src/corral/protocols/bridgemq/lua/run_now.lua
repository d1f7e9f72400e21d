-- run_now: fire a schedule once, besides its own times.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] id of the firing   ARGV[5] JSON   ARGV[6] type   ARGV[7] queue   ARGV[8] priority
-- Returns  1 where it was added, 0 where it existed
-- use keys
-- use fire_job
return fire(ARGV[4], ARGV[5], {type = ARGV[6], queue = ARGV[7]}, tonumber(ARGV[8])) and 1 or 0
