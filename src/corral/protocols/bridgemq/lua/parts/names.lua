-- The names every verb of ours begins with.
-- KEYS[1]  .. [11] as in keys.fixed
--   waiting    LIST  ids, next to run at the left end     events      STREAM  what our parts did (ours)
--   active     SET   ids in hand                          holders     HASH    id -> who has it, since when (ours)
--   delayed    ZSET  id by due ms                         cancelling  SET     ids whose worker should end them (ours)
--   cron       ZSET  id by next firing ms, inf: paused    known       SET     queue names seen (ours)
--   deadletter LIST  ids, newest at the left end          completed   ZSET    id by end ms, one a queue (ours)
--   paused     SET   names of paused queues
-- ARGV[1]  now ms   ARGV[2] server id of the worker that speaks, or ""   ARGV[3] about how many events are kept
local call, try = redis.call, redis.pcall
local WAITING, ACTIVE, DELAYED, CRON, DEAD, PAUSED, EVENTS, HOLDERS, CANCELLING, KNOWN, COMPLETED = unpack(KEYS, 1, 11)
local FIXED = 11
local NOW, SPEAKER, MOST_EVENTS = ARGV[1], ARGV[2], ARGV[3]
local JOBS = string.sub(WAITING, 1, -#"waiting" - 1)
local ROOT = string.sub(JOBS, 1, -#"jobs:" - 1)
