-- What every verb shares: the names, the states a job never leaves, and how its story is told.
-- KEYS[1]  jobs:stream   KEYS[2] jobs:events
-- ARGV[1]  now ms   ARGV[2] the worker that speaks, or ""   ARGV[3] ttl s where a job names none
-- ARGV[4]  most entries of jobs:events   ARGV[5] what a job's key begins with
local call, try = redis.call, redis.pcall
local STREAM, SHARED = KEYS[1], KEYS[2]
local NOW, SPEAKER, TTL, MOST_SHARED, JOB = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local GROUP = "workers"
local OVER = {done = true, error = true, canceled = true}

-- jobs:events is kept by count, so one large result must not weigh as much as all the others
local MOST_SHARED_BYTES = 8192

-- A stranger may have written anything here; a nan fails both comparisons.
local function lifetime(ttl)
  local seconds = tonumber(ttl)
  if not (seconds and seconds >= 1 and seconds <= 2147483647) then return TTL end
  return string.format("%d", seconds)
end

-- The shared log is a hint: a job's own end must not depend on it.
local function share(id, task, kind, at, step, data)
  if #data > MOST_SHARED_BYTES then data = string.format('{"omitted":%d}', #data) end
  if SPEAKER == "" then
    try("XADD", SHARED, "MAXLEN", "~", MOST_SHARED, "*", "type", kind, "ts", at, "step", step, "data", data,
        "job_id", id, "task", task)
  else
    try("XADD", SHARED, "MAXLEN", "~", MOST_SHARED, "*", "type", kind, "ts", at, "step", step, "data", data,
        "job_id", id, "task", task, "worker", SPEAKER)
  end
end

-- The event comes before the lifetimes: a key of the wrong type stops us before anything is written.
local function tell(id, task, ttl, kind, at, step, data)
  local job = JOB .. id
  call("XADD", job .. ":events", "*", "type", kind, "ts", at, "step", step, "data", data)
  call("EXPIRE", job .. ":events", ttl)
  call("EXPIRE", job, ttl)
  share(id, task, kind, at, step, data)
end

-- Entries that are done with leave together: two calls for all of them, not two for each.
local dropped, is_dropped = {}, {}

local function drop(entry)
  dropped[#dropped + 1] = entry
  is_dropped[entry] = true
end

local function clear_dropped()
  if #dropped == 0 then return end
  call("XACK", STREAM, GROUP, unpack(dropped))
  call("XDEL", STREAM, unpack(dropped))
  dropped = {}
end

local function fields_of(flat)
  local field = {}
  for i = 1, #flat, 2 do field[flat[i]] = flat[i + 1] end
  return field
end

-- The contract's ids are UUIDs; of a stranger's we take what can be a key and a text.
local function is_id(id)
  return id and #id > 0 and #id <= 255 and not string.find(id, "[^!-~]")
end

-- End the script with an error whose first word the client knows; before 7.0 only a text can be thrown.
local function raise(text)
  error(redis.REDIS_VERSION_NUM and {err = text} or text, 0)
end

local SERVER_WIDE = {"OOM ", "READONLY ", "MISCONF ", "NOREPLICAS "}

-- One entry's trouble is its own; the server's is everyone's, and it shows before the first write.
local function each_alone(act, ...)
  local fine, answer = pcall(act, ...)
  if fine then return answer end
  local text = type(answer) == "table" and answer.err or tostring(answer)
  for _, word in ipairs(SERVER_WIDE) do
    if string.find(text, word, 1, true) then raise(text) end
  end
  return text
end
