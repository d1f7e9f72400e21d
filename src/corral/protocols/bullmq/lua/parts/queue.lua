-- The keys that every script declares, in one order (keys.fixed), and functions that all scripts share.
--
--   wait, paused   LIST   ids, next to run at the right end      completed, failed  ZSET  id by finish ms
--   prioritized    ZSET   id by priority * 2^32 + pc             stalled            SET   suspects of the last sweep
--   delayed        ZSET   id by due ms * 4096 + n                marker             ZSET  "0" wake now, "1" wake at ms
--   active         LIST   ids, last claimed at the left end      events             STREAM
--   repeat         ZSET   scheduler id by next ms                waiting-children   ZSET  id by ms
--   <id>           HASH   the job            <id>:lock  STRING receipt            <id>:logs  LIST
--   de:<id>        STRING the job under a deduplication id        repeat:<scheduler id>      HASH
--   dn:<id>        HASH   the job that follows that one (BullMQ 6)
--
-- The list `paused` takes the place of `wait` while a queue of BullMQ 5 is paused; BullMQ 6 has `wait` alone.
local call = redis.call
local WAIT, PAUSED, PRIORITIZED, DELAYED, ACTIVE, COMPLETED, FAILED, STALLED, STALLED_CHECK,
      LIMITER, META, ID, MARKER, EVENTS, PRIORITY_COUNTER, CANCELLING, WAITING_CHILDREN,
      REPEAT = unpack(KEYS, 1, 18)
local PREFIX = string.sub(META, 1, -5)
local FIXED = 18

-- The generation of BullMQ that a queue's meta tells, or false; other libraries count versions of their own.
-- scripts.py defines GIVEN, the generation that the app was given, or false.
local function noted_generation(version)
  local major = tonumber(string.match(version or "", "^bullmq:(%d+)"))
  return major and math.min(math.max(major, 5), 6) or false
end

-- Whether a queue is of BullMQ 6.
local function is_six(state)
  if state.is_six == nil then state.is_six = (noted_generation(state.version) or GIVEN or 5) == 6 end
  return state.is_six
end

-- The settings in meta: where new jobs go, and whether a waiting worker may be woken.
local function queue_state()
  local row = call("HMGET", META, "paused", "concurrency", "max", "duration", "opts.maxLenEvents", "version", "groups")
  local state = {
    paused = row[1] ~= false,
    concurrency = tonumber(row[2]),
    max = tonumber(row[3]),
    duration = tonumber(row[4]),
    kept_events = row[5],
    version = row[6],
    groups = row[7],
  }
  if GIVEN and (noted_generation(row[6]) or GIVEN) ~= GIVEN then error("GENERATION " .. row[6], 0) end
  state.target = state.paused and not is_six(state) and PAUSED or WAIT
  state.active, state.meta = ACTIVE, META
  state.leaving = 0 -- settled jobs still in the list of active ones
  return state
end

-- Whether the queue is paused, or has as many active jobs as it may.
local function is_blocked(state)
  if state.paused then return true end
  return state.concurrency ~= nil and call("LLEN", state.active) - state.leaving >= state.concurrency
end

-- How many events are kept; the default is written to meta, as every client of this contract does, and with it the
-- version: all clients of a queue must be of one generation.
local function kept_events(state)
  if not state.kept_events or (GIVEN and not state.version) then
    state.kept_events = state.kept_events or "10000"
    state.version = state.version or (GIVEN == 6 and "bullmq:6.7.0" or "bullmq:5.62.0")
    call("HSET", state.meta, "opts.maxLenEvents", state.kept_events, "version", state.version)
  end
  return state.kept_events
end

-- Use a long list in pieces: a command takes a limited number of arguments.
local function in_chunks(list, size, use)
  for from = 1, #list, size do use(from, math.min(from + size - 1, #list)) end
end

local function wake(blocked)
  if not blocked then call("ZADD", MARKER, 0, "0") end
end

-- Wake a worker when the earliest delayed job is due.
local function wake_when_due()
  local first = call("ZRANGE", DELAYED, 0, 0, "WITHSCORES")
  if first[2] then call("ZADD", MARKER, tonumber(first[2]) / 4096, "1") end
end

local function next_due()
  local first = call("ZRANGE", DELAYED, 0, 0, "WITHSCORES")
  return first[2] and math.floor(tonumber(first[2]) / 4096) or 0
end

-- A score among the delayed: after those of the same millisecond, as far as 12 bits reach.
local function delayed_score(due)
  local lowest, highest = due * 4096, due * 4096 + 4095
  local last = call("ZREVRANGEBYSCORE", DELAYED, highest, lowest, "WITHSCORES", "LIMIT", 0, 1)
  if last[2] then return math.min(tonumber(last[2]) + 1, highest) end
  return lowest
end

local function delay_job(id, due, is_silent)
  call("ZADD", DELAYED, delayed_score(due), id)
  call("XADD", EVENTS, "*", "event", "delayed", "jobId", id, "delay", due)
  if not is_silent then wake_when_due() end
end

local function priority_score(priority)
  return priority * 4294967296 + call("INCR", PRIORITY_COUNTER) % 4294967296
end

local function remove_keys(job)
  return call("DEL", job, job .. ":logs", job .. ":dependencies", job .. ":processed",
              job .. ":failed", job .. ":unsuccessful")
end
