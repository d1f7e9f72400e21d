-- Create jobs. A row is
-- [id, task, payload, ttl s, created ms, idempotency key, fingerprint key, fingerprint, is the id requested,
--  unique [key, ms, only until the job has ended] or nil]
-- use job_events
local function must_hold(key, kind)
  local found = call("TYPE", key).ok
  if found ~= "none" and found ~= kind then
    raise("WRONGTYPE " .. key .. " holds a " .. found .. ", not a " .. kind .. "; nothing was written")
  end
  return found
end

local planned_ids, planned_keys = {}, {}

-- Returns the id of this idempotency key, its fingerprint, and whether that job is still to be created.
local function kept_under(key, print_key)
  if planned_keys[key] then return planned_keys[key][1], planned_keys[key][2] end
  must_hold(key, "string")
  must_hold(print_key, "string")
  local id, print = call("GET", key), call("GET", print_key)
  if not id then return nil end
  if call("EXISTS", JOB .. id) == 1 then return id, print end
  -- Corral writes both in one step, so the job has expired; a foreign gateway writes the key first, then the job
  return not print and id or nil, nil, not print
end

-- Returns the id of the job that counts as the same; the key is Corral's own.
local function same_job(unique)
  local key = unique[1]
  if planned_keys[key] then return planned_keys[key][1] end
  must_hold(key, "string")
  local id = call("GET", key)
  if not id or not unique[3] then return id end
  local status = call("HGET", JOB .. id, "status")
  return (status == "queued" or status == "running") and id or nil
end

-- Plan what to do with each row, writing nothing. Returns the ids, the rows to create, nil, and the positions of
-- those that exist or that the ledger knows; or, third, [why nothing may be written, position, id of the key].
local function plan(rows, ledger)
  must_hold(STREAM, "stream")
  must_hold(EVENTS, "stream")
  if ledger then must_hold(ledger, "set") end
  local ids, fresh, existing = {}, {}, {}
  for position, row in ipairs(rows) do
    local id, key = row[1], row[6]
    local kept, print, is_to_come
    if ledger and (planned_ids[id] or call("SISMEMBER", ledger, id) == 1) then
      kept = id
    elseif key ~= "" then
      kept, print, is_to_come = kept_under(key, row[7])
    elseif row[10] then
      kept = same_job(row[10])
    end
    if kept then
      if is_to_come then return nil, nil, {"unfinished", position - 1, kept} end
      -- without a fingerprint a foreign gateway wrote the key, and it is not compared
      if print and print ~= row[8] then return nil, nil, {"conflict", position - 1, kept} end
      ids[position] = kept
      existing[#existing + 1] = position - 1
    else
      ids[position] = id
      -- an id that was made for this job needs no check
      if not row[9] or not planned_ids[id] and must_hold(JOB .. id, "hash") == "none" then
        planned_ids[id] = true
        if key ~= "" then planned_keys[key] = {id, row[8]} end
        if row[10] then planned_keys[row[10][1]] = {id} end
        fresh[#fresh + 1] = row
      else
        existing[#existing + 1] = position - 1
      end
    end
  end
  return ids, fresh, nil, existing
end

local function create(row)
  local id, task, payload, ttl = row[1], row[2], row[3], row[4]
  local job = JOB .. id
  call("HSET", job, "job_id", id, "task", task, "payload", payload, "status", "queued", "created_ts", row[5],
       "updated_ts", NOW, "ttl_s", ttl, "result", "", "error", "")
  -- what an earlier job of this id left would end a reader's tail too soon
  if row[9] then call("DEL", job .. ":events", job .. ":deliveries") end
  emit(id, task, ttl, "queued", NOW, "gateway.enqueue", "{}")
  if row[6] ~= "" then
    -- by this field later scripts let the key live as long as the job
    call("HSET", job, "idempotency_key", string.sub(row[6], #ROOT + #"idempotency:" + 1))
    call("SET", row[6], id, "EX", ttl)
    call("SET", row[7], row[8], "EX", ttl)
  end
  if row[10] then call("SET", row[10][1], id, "PX", row[10][2]) end
  call("XADD", STREAM, "*", "job_id", id, "task", task, "payload", payload)
end
