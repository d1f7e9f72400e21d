-- submit: create jobs whole: hash, lifetime, first event, queue entry, and the idempotency key where one is given.
-- KEYS     jobs:stream jobs:events, then hash, events and deliveries of each job, then its idempotency keys
-- ARGV[1]  .. [5] as in parts/story
-- ARGV[6]  msgpack [[id, task, payload, ttl s, created ms, idempotency key, fingerprint key, fingerprint,
--          was the id given], …]
-- Returns  ["ids", id, …], or ["conflict", position, id]: then nothing was written
-- use story
local rows = cmsgpack.unpack(ARGV[6])

local function holds(key, kind)
  local found = call("TYPE", key).ok
  return found == "none" or found == kind, found
end

local function must_hold(key, kind)
  local fine, found = holds(key, kind)
  if not fine then
    raise("WRONGTYPE " .. key .. " holds a " .. found .. ", not a " .. kind .. "; nothing was written")
  end
  return found
end

local planned_ids, planned_keys = {}, {}

-- id held under this idempotency key (and its fingerprint), while the job it names is still there
local function kept_under(key, print_key)
  if planned_keys[key] then return planned_keys[key][1], planned_keys[key][2] end
  must_hold(key, "string")
  must_hold(print_key, "string")
  local id = call("GET", key)
  if not id or call("EXISTS", JOB .. id) == 0 then return nil end
  return id, call("GET", print_key)
end

-- Everything is looked at before anything is written.
must_hold(STREAM, "stream")
must_hold(SHARED, "stream")
local ids, fresh = {"ids"}, {}
for position, row in ipairs(rows) do
  local id, key = row[1], row[6]
  local kept, print
  if key ~= "" then kept, print = kept_under(key, row[7]) end
  if kept then
    -- without a fingerprint a stranger wrote the key: its word is taken
    if print and print ~= row[8] then return {"conflict", position - 1, kept} end
    ids[position + 1] = kept
  else
    ids[position + 1] = id
    -- an id made for this job a moment ago is nobody else's
    if not row[9] or not planned_ids[id] and must_hold(JOB .. id, "hash") == "none" then
      planned_ids[id] = true
      if key ~= "" then planned_keys[key] = {id, row[8]} end
      fresh[#fresh + 1] = row
    end
  end
end

for _, row in ipairs(fresh) do
  local id, task, payload, ttl = row[1], row[2], row[3], row[4]
  local job = JOB .. id
  call("HSET", job, "job_id", id, "task", task, "payload", payload, "status", "queued", "created_ts", row[5],
       "updated_ts", NOW, "ttl_s", ttl, "result", "", "error", "")
  -- what an earlier life of this id left would end a reader's tail too soon
  if row[9] then call("DEL", job .. ":events", job .. ":deliveries") end
  tell(id, task, ttl, "queued", NOW, "gateway.enqueue", "{}")
  if row[6] ~= "" then
    call("SET", row[6], id, "EX", ttl)
    call("SET", row[7], row[8], "EX", ttl)
  end
  call("XADD", STREAM, "*", "job_id", id, "task", task, "payload", payload)
end
return ids
