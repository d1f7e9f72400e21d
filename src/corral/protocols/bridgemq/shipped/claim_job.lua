-- claim_job: the document's own claim, for clients that follow it: the first job of the first 100 that fits.
-- KEYS[1]  waiting   KEYS[2] active   KEYS[3] paused queues
-- ARGV[1]  worker id   ARGV[2] stack, JSON array   ARGV[3] capabilities, JSON array   ARGV[4] region, JSON array
-- ARGV[5]  now ms   ARGV[6] lock s   ARGV[7] "…:jobs:data:"   ARGV[8] "…:jobs:lock:"   ARGV[9] "…:ratelimit:concurrent:"
-- ARGV[10] may be left out: how many jobs to look at (100)
-- Returns  the job's JSON, or nil
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

-- May this worker have this job now, and if so, take it.
-- Does this worker fit this target? The rule of core/routing.py, over decoded JSON.
-- A worker is {server = id, stack = {word = true}, capabilities = {…}, region = {…}}.

-- The words of a criterion as a list, or nil where it is malformed.
local function words_of(value)
  if value == nil or value == cjson.null then return {} end
  if type(value) == "string" then return {value} end
  if type(value) ~= "table" then return nil end
  for key, word in pairs(value) do
    if type(key) ~= "number" or type(word) ~= "string" then return nil end
  end
  return value
end

local function has_one(words, known)
  for _, word in ipairs(words) do
    if known[word] then return true end
  end
  return false
end

local function has_all(words, known)
  for _, word in ipairs(words) do
    if not known[word] then return false end
  end
  return true
end

-- true, false, or nil where no rule can be read from the target
local function fits(target, worker)
  if target == nil or target == cjson.null then return true end
  if type(target) ~= "table" then return nil end
  -- an empty list and an empty object look alike here
  if next(target) == nil then return true end
  if target[1] ~= nil then return nil end
  local server, mode = target.server, target.mode
  if server ~= nil and server ~= cjson.null and server ~= "" then
    if type(server) ~= "string" then return nil end
    return server == worker.server
  end
  if mode == nil or mode == cjson.null then mode = "all" end
  if mode ~= "all" and mode ~= "any" then return nil end
  local stack, capabilities, region =
    words_of(target.stack), words_of(target.capabilities), words_of(target.region)
  if not (stack and capabilities and region) then return nil end
  local given, found = 0, 0
  if #stack > 0 then
    given = given + 1
    if has_one(stack, worker.stack) then found = found + 1 end
  end
  if #capabilities > 0 then
    given = given + 1
    if (mode == "all" and has_all or has_one)(capabilities, worker.capabilities) then found = found + 1 end
  end
  if #region > 0 then
    given = given + 1
    if has_one(region, worker.region) then found = found + 1 end
  end
  if mode == "all" then return found == given end
  return given == 0 or found > 0
end

-- A list of words as a table to look them up in.
local function owned(words)
  local known = {}
  for _, word in ipairs(words) do known[word] = true end
  return known
end

-- The two limits of a job type, as far as this call has used them up already.
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

local MINUTE_S = 60
local tallies = {}

local function tally_of(kind)
  local tally = tallies[kind]
  if not tally then
    local row = call("MGET", ROOT .. "ratelimit:concurrent:" .. kind, ROOT .. "ratelimit:minute:" .. kind)
    tally = {active = tonumber(row[1] or 0) or 0, claimed = tonumber(row[2] or 0) or 0, taken = 0}
    tallies[kind] = tally
  end
  return tally
end

-- nil where one more of its type may be taken, else the limit that stands in the way
local function limit_reached(job)
  if not (job.concurrent or job.per_minute) then return nil end
  local tally = tally_of(job.type)
  if job.concurrent and tally.active + tally.taken >= job.concurrent then return "concurrent" end
  if job.per_minute and tally.claimed + tally.taken >= job.per_minute then return "minute" end
  return nil
end

-- ms until this minute's count begins anew
local function minute_left(kind)
  return math.max(call("PTTL", ROOT .. "ratelimit:minute:" .. kind), 1)
end

-- Every claim counts, limited or not: whoever gives a job back counts it down again.
local function count_taken()
  for kind, tally in pairs(tallies) do
    if tally.taken > 0 then
      call("INCRBY", ROOT .. "ratelimit:concurrent:" .. kind, tally.taken)
      local minute = ROOT .. "ratelimit:minute:" .. kind
      call("INCRBY", minute, tally.taken)
      -- a counter without an end, whoever left it so, would block its type for ever
      if call("TTL", minute) < 0 then call("EXPIRE", minute, MINUTE_S) end
      tally.active, tally.claimed, tally.taken = tally.active + tally.taken, tally.claimed + tally.taken, 0
    end
  end
end

local GONE, BROKEN = "gone", "broken"

-- "fits"; "other", "limited" or "locked" where it must wait; GONE or BROKEN where it can never run.
-- `queue` nil: any queue, as long as it is not paused.
local function judge(id, raw, job, worker, queue)
  if not raw then return GONE end
  if job.is_broken then return BROKEN end
  if queue then
    if job.queue ~= queue then return "other" end
  elseif call("SISMEMBER", PAUSED, job.queue) == 1 then
    return "other"
  end
  local fit = fits(job.target, worker)
  if fit == nil then return BROKEN end
  if not fit then return "other" end
  if limit_reached(job) then return "limited" end
  return "fits"
end

-- Why a job is buried that no worker could ever run.
local function burial_reason(job)
  if job.is_broken then return "its job data is no JSON object", "InvalidJob" end
  return "its target cannot be read: no worker would ever fit it", "InvalidTarget"
end

-- Jobs that were taken: what is written down for all of them at once.
local taken_ids, taken_by, taken_status = {}, {}, {}

local function note_taken()
  in_chunks(taken_ids, 1000, function(from, to) call("SADD", ACTIVE, unpack(taken_ids, from, to)) end)
  in_chunks(taken_by, 1000, function(from, to) try("HSET", HOLDERS, unpack(taken_by, from, to)) end)
  in_chunks(taken_status, 1000, function(from, to) call("MSET", unpack(taken_status, from, to)) end)
  taken_ids, taken_by, taken_status = {}, {}, {}
  count_taken()
end

local function append(list, first, second)
  local length = #list
  list[length + 1], list[length + 2] = first, second
end

-- The number of this claim, or nil where the lock is someone's. The document's lock keeps its meaning;
-- the fence beside it tells two claims of the same worker apart.
local function take(id, job, lock_ms, kind)
  local lock = JOBS .. "lock:" .. id
  if not call("SET", lock, SPEAKER, "NX", "PX", lock_ms) then return nil end
  local fence = try("INCR", JOBS .. "fence:" .. id)
  if type(fence) ~= "number" then
    call("DEL", lock)
    error(fence.err, 0)
  end
  taken_ids[#taken_ids + 1] = id
  append(taken_by, id, cmsgpack.pack({kind, tonumber(NOW), job.type, SPEAKER}))
  append(taken_status, JOBS .. "status:" .. id, "active")
  local tally = tally_of(job.type)
  tally.taken = tally.taken + 1
  tell("active", id, job, "")
  return fence
end

local WINDOW, RESULT_S = positive(tonumber(ARGV[10])) or 100, 86400
local refused = name_from(ARGV[7], "data:")
if refused then return refused end
WAITING, ACTIVE, PAUSED = KEYS[1], KEYS[2], KEYS[3]
SPEAKER, NOW = ARGV[1], integer(tonumber(ARGV[5]) or 0)
local worker = {server = SPEAKER}
for position, name in ipairs({"stack", "capabilities", "region"}) do
  local fine, words = pcall(cjson.decode, ARGV[position + 1])
  if not fine or type(words) ~= "table" then
    return redis.error_reply("ERR the worker's " .. name .. " is no JSON array of words, such as [\"gpu\"]; nothing was claimed")
  end
  worker[name] = owned(words)
end
local lock_ms = integer((tonumber(ARGV[6]) or 30) * 1000)

for _, id in ipairs(call("LRANGE", WAITING, 0, WINDOW - 1)) do
  local raw, job = load_job(id)
  local verdict = judge(id, raw, job, worker, nil)
  if verdict == "fits" and take(id, job, lock_ms, "s") then
    call("LREM", WAITING, 1, id)
    note_taken()
    return raw
  elseif verdict == GONE then
    call("LREM", WAITING, 1, id)
  elseif verdict == BROKEN then
    call("LREM", WAITING, 1, id)
    local reason, name = burial_reason(job)
    bury(id, job, reason, name, RESULT_S)
  end
end
return nil
