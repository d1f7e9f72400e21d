-- process_delayed: the document's own promotion: jobs that are due go to the back of waiting.
-- KEYS[1]  delayed   KEYS[2] waiting
-- ARGV[1]  now ms   ARGV[2] most jobs (100)
-- Returns  how many were moved
-- The same names for the document's own scripts, worked out from the keys a foreign client gives.
-- `given` is one of its key names or prefixes, `ending` what it ends in after "…jobs:".
local call, try = redis.call, redis.pcall
local WAITING, ACTIVE, CRON, DEAD, PAUSED, EVENTS, HOLDERS, CANCELLING, KNOWN, JOBS, ROOT
local NOW, SPEAKER, MOST_EVENTS = "0", "", "10000"

local function name_from(given, ending)
  if string.sub(given, -#ending) ~= ending then
    return redis.error_reply("ERR '" .. given .. "' does not end in '" .. ending .. "', as the data model names it")
  end
  JOBS = string.sub(given, 1, -#ending - 1)
  ROOT = string.sub(JOBS, -5) == "jobs:" and string.sub(JOBS, 1, -6) or JOBS
  WAITING, ACTIVE, CRON, DEAD = JOBS .. "waiting", JOBS .. "active", JOBS .. "cron", JOBS .. "deadletter"
  PAUSED = ROOT .. "queues:paused"
  EVENTS, HOLDERS, CANCELLING = ROOT .. "events", JOBS .. "holders", JOBS .. "cancelling"
  KNOWN = ROOT .. "queues:known"
  return nil
end

-- Words about jobs that all verbs share, after the names (parts/names or parts/document).
local FRONT_FROM = 7
local USUAL_ATTEMPTS = 3
local USUAL_QUEUE = "default"
local MOST_EVENT_BYTES = 8192
local SERVER_WIDE = {"OOM ", "READONLY ", "MISCONF ", "NOREPLICAS "}

local function text_of(value)
  return type(value) == "string" and value ~= "" and value or nil
end

-- A finite number, or nil: a nan fails both comparisons.
local function number_of(value)
  return type(value) == "number" and value > -1e15 and value < 1e15 and value or nil
end

local function positive(value)
  local number = number_of(value)
  return number and number > 0 and number or nil
end

-- A job's JSON as a table, or nil where it is no object.
-- It is only ever read: the numbers and empty lists in it would not survive being written again.
local function decoded(raw)
  local fine, job = pcall(cjson.decode, raw)
  if not fine or type(job) ~= "table" or job[1] ~= nil then return nil end
  return job
end

-- What the scripts need of it. Odd parts read as if they were missing.
local function described(job)
  local rate = type(job.rateLimit) == "table" and job.rateLimit or {}
  local retry = type(job.retry) == "table" and job.retry or {}
  return {
    type = text_of(job.type) or "",
    queue = text_of(job.queue) or USUAL_QUEUE,
    priority = number_of(job.priority) or 0,
    target = job.target,
    schedule = type(job.schedule) == "table" and job.schedule or {},
    concurrent = positive(rate.maxConcurrent) or positive(rate.concurrent),
    per_minute = positive(rate.maxPerMinute) or positive(rate.perMinute),
    attempt = number_of(job.attempt) or number_of(job.attempts) or 0,
    most = positive(job.maxAttempts) or positive(retry.attempts) or USUAL_ATTEMPTS,
  }
end

local function read_job(raw)
  local job = decoded(raw)
  return job and described(job)
end

local UNREADABLE = {
  type = "", queue = USUAL_QUEUE, priority = 0, schedule = {}, attempt = 0, most = USUAL_ATTEMPTS, is_broken = true,
}

-- The JSON under a job's data key (false: none) and what it says.
local function load_job(id)
  local raw = try("GET", JOBS .. "data:" .. id)
  if type(raw) ~= "string" then return false, nil end
  return raw, read_job(raw) or UNREADABLE
end

local function integer(number)
  return string.format("%.0f", number)
end

-- About how many events are kept: what the namespace says, else what the caller says.
local kept
local function kept_events()
  if not kept then
    local said = try("GET", ROOT .. "events:kept")
    kept = type(said) == "string" and tonumber(said) and said or MOST_EVENTS
  end
  return kept
end

-- The event stream is for readers: a job's own way must not depend on it.
local function tell(kind, id, job, data, ...)
  local event = {"event", kind, "at", NOW, "jobId", id, "type", job.type, "queue", job.queue, ...}
  if SPEAKER ~= "" then
    event[#event + 1] = "worker"
    event[#event + 1] = SPEAKER
  end
  if data ~= "" then
    if #data > MOST_EVENT_BYTES then data = string.format('{"omitted":%d}', #data) end
    event[#event + 1] = "data"
    event[#event + 1] = data
  end
  try("XADD", EVENTS, "MAXLEN", "~", kept_events(), "*", unpack(event))
end

-- Higher is earlier here: from 7 on a job goes to the front.
local function enter_waiting(id, priority)
  call(priority >= FRONT_FROM and "LPUSH" or "RPUSH", WAITING, id)
  call("SET", JOBS .. "status:" .. id, "waiting")
end

-- So many less of this type in hand; the counter never goes below nothing.
local function give_back_slot(kind, count)
  local counter = ROOT .. "ratelimit:concurrent:" .. kind
  local left = try("DECRBY", counter, count)
  if type(left) == "number" and left <= 0 then call("DEL", counter) end
end

-- Nobody has this job any more; was it in hand?
local function let_go(id, kind)
  call("DEL", JOBS .. "lock:" .. id)
  call("HDEL", HOLDERS, id)
  call("SREM", CANCELLING, id)
  if call("SREM", ACTIVE, id) == 0 then return false end
  give_back_slot(kind, 1)
  return true
end

-- To the dead letters, for a reason of our own; its data stays.
local function bury(id, job, reason, name, result_s)
  try("HSET", JOBS .. "failure:" .. id, "reason", reason, "at", NOW)
  call("SET", JOBS .. "result:" .. id,
       string.format('{"success":false,"error":{"message":%s,"stack":"","name":"%s"},"completedAt":%s,"processingTime":0}',
                     cjson.encode(reason), name, NOW), "EX", result_s)
  call("SET", JOBS .. "status:" .. id, "dead")
  call("LPUSH", DEAD, id)
  tell("dead", id, job, '{"reason":' .. cjson.encode(reason) .. "}")
end

-- One job's trouble is its own; the server's is everyone's, and it shows before the first write.
local function each_alone(act, ...)
  local fine, answer = pcall(act, ...)
  if fine then return answer end
  local text = type(answer) == "table" and answer.err or tostring(answer)
  for _, word in ipairs(SERVER_WIDE) do
    if string.find(text, word, 1, true) then error(answer, 0) end
  end
  return text
end

-- Use a long list in bounded pieces: a command takes only so many arguments.
local function in_chunks(list, size, use)
  for from = 1, #list, size do use(from, math.min(from + size - 1, #list)) end
end

local refused = name_from(KEYS[1], "delayed")
if refused then return refused end
NOW = integer(tonumber(ARGV[1]) or 0)
local ids = call("ZRANGEBYSCORE", KEYS[1], 0, NOW, "LIMIT", 0, tonumber(ARGV[2] or 100) or 100)
for _, id in ipairs(ids) do
  local raw, job = load_job(id)
  call("ZREM", KEYS[1], id)
  call("RPUSH", KEYS[2], id)
  if raw then
    call("SET", JOBS .. "status:" .. id, "waiting")
    tell("waiting", id, job, "", "prev", "delayed")
  end
end
return #ids
