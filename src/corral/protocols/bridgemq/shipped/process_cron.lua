-- process_cron: the document's own firing of schedules that are due. Each fires as a job of its own with the id
-- "{jobId}@{fire time ms}", so that a second try adds nothing; the schedule is out of reach until its client says
-- when it is due again (ZADD cron), or until the lease of a client that never came back runs out.
-- KEYS[1]  cron   KEYS[2] waiting   KEYS[3] "…:jobs:data:"
-- ARGV[1]  now ms   ARGV[2] most jobs (100)
-- Returns  JSON array of {jobId, cronExpression, timezone}
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

-- Add one firing of a schedule as a job of its own; false where it was added before.
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

local function fire(id, raw, job, priority)
  if call("EXISTS", JOBS .. "data:" .. id, JOBS .. "status:" .. id) > 0 then return false end
  call("SET", JOBS .. "data:" .. id, raw)
  enter_waiting(id, priority)
  tell("added", id, job, "", "to", "waiting")
  return true
end

-- Due schedules are leased to whoever takes them: their score moves out of reach in the same step, and what it was
-- is written down beside, so that another can take over where the first never came back.
-- A lease is "due ms:lease ms"; it holds while the score is still that lease.
local LEASES

local function lease_of(id, score)
  local due, lease = string.match(call("HGET", LEASES, id) or "", "^(%d+):(%d+)$")
  if due and tonumber(lease) == score then return tonumber(due) end
  return nil
end

-- [{id, due, lease}, …]; due is when the schedule should have fired, whoever had it before.
local function take_due(most, lease_ms)
  local found = call("ZRANGEBYSCORE", CRON, "-inf", NOW, "WITHSCORES", "LIMIT", 0, most)
  local taken = {}
  for i = 1, #found, 2 do
    local id, score = found[i], tonumber(found[i + 1])
    local due = lease_of(id, score) or score
    local lease = tonumber(NOW) + lease_ms
    call("ZADD", CRON, "XX", lease, id)
    call("HSET", LEASES, id, integer(due) .. ":" .. integer(lease))
    taken[#taken + 1] = {id = id, due = due, lease = lease}
  end
  return taken
end

-- A job's JSON with another id, byte for byte the same elsewhere: what a decoder would lose is not touched.

-- Where the string that begins at `from` (its quote) ends.
local function string_end(raw, from)
  local at = from + 1
  while true do
    local stop = string.find(raw, '["\\]', at)
    if string.sub(raw, stop, stop) == '"' then return stop end
    at = stop + 2
  end
end

-- Where the value that begins at `from` ends; the JSON is known to be sound.
local function value_end(raw, from)
  local first = string.sub(raw, from, from)
  if first == '"' then return string_end(raw, from) end
  if first ~= "{" and first ~= "[" then return string.find(raw, "[%s,}%]]", from) - 1 end
  local depth, at = 0, from
  while true do
    at = string.find(raw, '["{}%[%]]', at)
    local mark = string.sub(raw, at, at)
    if mark == '"' then
      at = string_end(raw, at)
    elseif mark == "{" or mark == "[" then
      depth = depth + 1
    else
      depth = depth - 1
      if depth == 0 then return at end
    end
    at = at + 1
  end
end

local function renamed(raw, id)
  local quoted = cjson.encode(id)
  local pieces, copied, found = {}, 1, false
  local at = string.find(raw, "{", 1, true) + 1
  while true do
    at = string.find(raw, '["}]', at)
    if string.sub(raw, at, at) == "}" then break end
    local key_end = string_end(raw, at)
    local key = string.sub(raw, at + 1, key_end - 1)
    local from = string.find(raw, "[^%s:]", key_end + 1)
    local to = value_end(raw, from)
    if key == "id" or key == "jobId" then
      pieces[#pieces + 1] = string.sub(raw, copied, from - 1) .. quoted
      copied, found = to + 1, true
    end
    at = to + 1
  end
  pieces[#pieces + 1] = string.sub(raw, copied)
  local text = table.concat(pieces)
  if found then return text end
  local open = string.find(text, "{", 1, true)
  local is_empty = string.find(text, "^%s*}", open + 1)
  return string.sub(text, 1, open) .. '"id":' .. quoted .. (is_empty and "" or ",") .. string.sub(text, open + 1)
end

local LEASE_MS = 60000
local refused = name_from(KEYS[3], "data:")
if refused then return refused end
CRON, WAITING, LEASES, NOW = KEYS[1], KEYS[2], ROOT .. "scheduler:leases", integer(tonumber(ARGV[1]) or 0)

local results = {}
for _, taken in ipairs(take_due(tonumber(ARGV[2] or 100) or 100, LEASE_MS)) do
  local raw, job = load_job(taken.id)
  if raw and not job.is_broken then
    local id = taken.id .. "@" .. integer(taken.due)
    fire(id, renamed(raw, id), job, 0)
    results[#results + 1] = cjson.encode({
      jobId = taken.id,
      cronExpression = text_of(job.schedule.cron) or "",
      timezone = text_of(job.schedule.timezone) or "UTC",
    })
  else
    call("ZREM", CRON, taken.id)
    call("HDEL", LEASES, taken.id)
    if raw then bury(taken.id, job, "its job data is no JSON object", "InvalidJob", 86400) end
  end
end
return "[" .. table.concat(results, ",") .. "]"
