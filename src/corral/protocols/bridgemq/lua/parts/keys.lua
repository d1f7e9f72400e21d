-- The keys and arguments that every script of ours begins with.
-- KEYS[1]  .. [11] as in keys.fixed
--   waiting    LIST  ids, next to run at the left end     events      STREAM  what Corral did (added)
--   active     SET   ids of active jobs                     holders     HASH    id -> its worker, since when (added)
--   delayed    ZSET  id by due ms                         cancelling  SET     ids to be cancelled (added)
--   cron       ZSET  id by next firing ms, inf: paused    known       SET     queue names seen (added)
--   deadletter LIST  ids, newest at the left end          completed   ZSET    id by end ms, one a queue (added)
--   paused     SET   names of paused queues
-- ARGV[1]  now ms   ARGV[2] server id of the worker, or ""   ARGV[3] about how many events are kept
local call, try = redis.call, redis.pcall
local WAITING, ACTIVE, DELAYED, CRON, DEAD, PAUSED, EVENTS, HOLDERS, CANCELLING, KNOWN, COMPLETED = unpack(KEYS, 1, 11)
local FIXED = 11
local NOW, WORKER, MOST_EVENTS = ARGV[1], ARGV[2], ARGV[3]
local JOBS = string.sub(WAITING, 1, -#"waiting" - 1)
local ROOT = string.sub(JOBS, 1, -#"jobs:" - 1)
