-- Functions about jobs that all scripts share, after the keys (parts/keys or parts/document_keys).
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
-- It is only read: large numbers and empty lists would not survive being encoded again.
local function decoded(raw)
  local fine, job = pcall(cjson.decode, raw)
  if not fine or type(job) ~= "table" or job[1] ~= nil then return nil end
  return job
end

-- What the scripts need of it; invalid parts count as missing.
local function described(job)
  local rate = type(job.rateLimit) == "table" and job.rateLimit or {}
  local retry = type(job.retry) == "table" and job.retry or {}
  return {
    type = text_of(job.type) or "",
    queue = text_of(job.queue) or USUAL_QUEUE,
    group = text_of(job.group),
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

-- Returns the JSON of a job (false: none), and what the scripts need of it.
local function load_job(id)
  local raw = try("GET", JOBS .. "data:" .. id)
  if type(raw) ~= "string" then return false, nil end
  return raw, read_job(raw) or UNREADABLE
end

local function integer(number)
  return string.format("%.0f", number)
end

-- About how many events are kept: the setting of the namespace, else of the caller.
local kept
local function kept_events()
  if not kept then
    local said = try("GET", ROOT .. "events:kept")
    kept = type(said) == "string" and tonumber(said) and said or MOST_EVENTS
  end
  return kept
end

-- The event stream is for readers: no job may depend on it.
local function emit(kind, id, job, data, ...)
  local event = {"event", kind, "at", NOW, "jobId", id, "type", job.type, "queue", job.queue, ...}
  if WORKER ~= "" then
    event[#event + 1] = "worker"
    event[#event + 1] = WORKER
  end
  if data ~= "" then
    if #data > MOST_EVENT_BYTES then data = string.format('{"omitted":%d}', #data) end
    event[#event + 1] = "data"
    event[#event + 1] = data
  end
  try("XADD", EVENTS, "MAXLEN", "~", kept_events(), "*", unpack(event))
end

-- Decrement the counter of a type, which never goes below 0.
local function free_slots(kind, count)
  local counter = ROOT .. "ratelimit:concurrent:" .. kind
  local left = try("DECRBY", counter, count)
  if type(left) == "number" and left <= 0 then call("DEL", counter) end
end

-- Release a job; returns whether it was active.
local function release(id, kind)
  call("DEL", JOBS .. "lock:" .. id)
  call("HDEL", HOLDERS, id)
  call("SREM", CANCELLING, id)
  if call("SREM", ACTIVE, id) == 0 then return false end
  free_slots(kind, 1)
  return true
end

-- Move a job to the dead letters with a reason; its data stays. `more` is JSON that its event has besides.
local function dead_letter(id, job, reason, name, result_s, more)
  try("HSET", JOBS .. "failure:" .. id, "reason", reason, "at", NOW)
  call("SET", JOBS .. "result:" .. id,
       string.format('{"success":false,"error":{"message":%s,"stack":"","name":"%s"},"completedAt":%s,"processingTime":0}',
                     cjson.encode(reason), name, NOW), "EX", result_s)
  call("SET", JOBS .. "status:" .. id, "dead")
  call("LPUSH", DEAD, id)
  emit("dead", id, job, '{"reason":' .. cjson.encode(reason) .. (more or "") .. "}")
end

-- End a job that was to be cancelled and was left by its worker before that knew.
local function end_cancelled(id, job, result_s)
  dead_letter(id, job, "cancelled", "Cancelled", result_s, ',"cancelled":true')
end

-- Call `act`; an error of one job is returned as text, an error of the server is raised.
local function isolated(act, ...)
  local fine, answer = pcall(act, ...)
  if fine then return answer end
  local text = type(answer) == "table" and answer.err or tostring(answer)
  for _, word in ipairs(SERVER_WIDE) do
    if string.find(text, word, 1, true) then error(answer, 0) end
  end
  return text
end

-- Use a long list in pieces: a command takes a limited number of arguments.
local function in_chunks(list, size, use)
  for from = 1, #list, size do use(from, math.min(from + size - 1, #list)) end
end
