-- What every script shares: the keys, the final states of a job, and how its events are written.
-- KEYS[1]  jobs:stream   KEYS[2] jobs:events
-- ARGV[1]  now ms   ARGV[2] the worker, or ""   ARGV[3] ttl s of a job without one, least s the keys of a held job live
-- ARGV[4]  most entries of jobs:events   ARGV[5] what a job's key begins with
local call, try = redis.call, redis.pcall
local STREAM, EVENTS = KEYS[1], KEYS[2]
local NOW, WORKER, MOST_EVENTS, JOB = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local TTL, HELD_S = string.match(ARGV[3], "^(%d+) (%d+)$")
local ROOT = string.sub(JOB, 1, -5) -- without "job:"
local GROUP = "workers"
local OVER = {done = true, error = true, canceled = true}

-- jobs:events is kept by count, so one large result must not weigh as much as all the others
local MOST_EVENT_BYTES = 8192

-- A foreign client may have written anything here; a nan fails both comparisons.
local function lifetime(ttl)
  local seconds = tonumber(ttl)
  if not (seconds and seconds >= 1 and seconds <= 2147483647) then return TTL end
  return string.format("%d", seconds)
end

-- While a worker holds a job its keys live at least so long, or a short ttl would end before the next renewal, or
-- before the job of a dead worker is found.
local function held_lifetime(ttl)
  local seconds = lifetime(ttl)
  return tonumber(seconds) < tonumber(HELD_S) and HELD_S or seconds
end

-- The idempotency keys of the jobs that a script has read.
local key_of = {}

-- Returns the status and the other fields of a job; its idempotency key is remembered.
local function read_job(id, ...)
  local known = call("HMGET", JOB .. id, "idempotency_key", ...)
  key_of[id] = table.remove(known, 1) or nil
  return known
end

-- Let a job's keys live for so long from now on.
local function keep(id, ttl)
  local job, key = JOB .. id, key_of[id]
  call("EXPIRE", job .. ":events", ttl)
  call("EXPIRE", job, ttl)
  if key then
    call("EXPIRE", ROOT .. "idempotency:" .. key, ttl)
    call("EXPIRE", ROOT .. "idempotency-fingerprint:" .. key, ttl)
  end
end

-- The shared stream is a hint: a job's end must not depend on it.
local function emit_shared(id, task, kind, at, step, data)
  if #data > MOST_EVENT_BYTES then data = string.format('{"omitted":%d}', #data) end
  if WORKER == "" then
    try("XADD", EVENTS, "MAXLEN", "~", MOST_EVENTS, "*", "type", kind, "ts", at, "step", step, "data", data,
        "job_id", id, "task", task)
  else
    try("XADD", EVENTS, "MAXLEN", "~", MOST_EVENTS, "*", "type", kind, "ts", at, "step", step, "data", data,
        "job_id", id, "task", task, "worker", WORKER)
  end
end

-- The event comes first: a key of the wrong type ends the script before anything is written.
local function emit(id, task, ttl, kind, at, step, data)
  call("XADD", JOB .. id .. ":events", "*", "type", kind, "ts", at, "step", step, "data", data)
  keep(id, ttl)
  emit_shared(id, task, kind, at, step, data)
end

-- Finished entries are deleted together: two calls for all of them, not two for each.
local deleted, is_deleted = {}, {}

local function delete_entry(entry)
  deleted[#deleted + 1] = entry
  is_deleted[entry] = true
end

local function delete_entries()
  if #deleted == 0 then return end
  call("XACK", STREAM, GROUP, unpack(deleted))
  call("XDEL", STREAM, unpack(deleted))
  deleted = {}
end

local function fields_of(flat)
  local field = {}
  for i = 1, #flat, 2 do field[flat[i]] = flat[i + 1] end
  return field
end

-- The contract's ids are UUIDs; a foreign one may be any text that can be a key.
local function is_id(id)
  return id and #id > 0 and #id <= 255 and not string.find(id, "[^!-~]")
end

-- End the script with an error whose first word the client knows; before 7.0 only a text can be raised.
local function raise(text)
  error(redis.REDIS_VERSION_NUM and {err = text} or text, 0)
end

local SERVER_WIDE = {"OOM ", "READONLY ", "MISCONF ", "NOREPLICAS "}

-- Call `act`; an error of one entry is returned as text, an error of the server is raised.
local function isolated(act, ...)
  local fine, answer = pcall(act, ...)
  if fine then return answer end
  local text = type(answer) == "table" and answer.err or tostring(answer)
  for _, word in ipairs(SERVER_WIDE) do
    if string.find(text, word, 1, true) then raise(text) end
  end
  return text
end
