-- The same names for the document's own scripts, derived from the keys of a foreign client.
-- `key` is one of its key names or prefixes, `ending` what it ends in after "…jobs:".
local call, try = redis.call, redis.pcall
local WAITING, ACTIVE, CRON, DEAD, PAUSED, EVENTS, HOLDERS, CANCELLING, KNOWN, JOBS, ROOT
local NOW, WORKER, MOST_EVENTS = "0", "", "10000"

local function name_from(key, ending)
  if string.sub(key, -#ending) ~= ending then
    return redis.error_reply("ERR '" .. key .. "' does not end in '" .. ending .. "', as the data model names it")
  end
  JOBS = string.sub(key, 1, -#ending - 1)
  ROOT = string.sub(JOBS, -5) == "jobs:" and string.sub(JOBS, 1, -6) or JOBS
  WAITING, ACTIVE, CRON, DEAD = JOBS .. "waiting", JOBS .. "active", JOBS .. "cron", JOBS .. "deadletter"
  PAUSED = ROOT .. "queues:paused"
  EVENTS, HOLDERS, CANCELLING = ROOT .. "events", JOBS .. "holders", JOBS .. "cancelling"
  KNOWN = ROOT .. "queues:known"
  return nil
end
