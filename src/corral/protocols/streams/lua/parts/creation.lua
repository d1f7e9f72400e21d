-- Create jobs whole. A row is
-- [id, task, payload, ttl s, created ms, idempotency key, fingerprint key, fingerprint, was the id given]
-- use story
local function must_hold(key, kind)
  local found = call("TYPE", key).ok
  if found ~= "none" and found ~= kind then
    raise("WRONGTYPE " .. key .. " holds a " .. found .. ", not a " .. kind .. "; nothing was written")
  end
  return found
end

local planned_ids, planned_keys = {}, {}

-- id held under this idempotency key, its fingerprint, and whether the job it names is still to come
local function kept_under(key, print_key)
  if planned_keys[key] then return planned_keys[key][1], planned_keys[key][2] end
  must_hold(key, "string")
  must_hold(print_key, "string")
  local id, print = call("GET", key), call("GET", print_key)
  if not id then return nil end
  if call("EXISTS", JOB .. id) == 1 then return id, print end
  -- ours are made in one step, so the job has gone; a stranger writes its key first and the job after it
  return not print and id or nil, nil, not print
end

-- What is to become of each row, written nowhere yet: the ids, the rows to create, nil, and the positions of those
-- that are there already or that the ledger knows; or, third, the word for why nothing may be written, the row's
-- position and the id its key stands for.
local function plan(rows, ledger)
  must_hold(STREAM, "stream")
  must_hold(SHARED, "stream")
  if ledger then must_hold(ledger, "set") end
  local ids, fresh, existing = {}, {}, {}
  for position, row in ipairs(rows) do
    local id, key = row[1], row[6]
    local kept, print, is_to_come
    if ledger and (planned_ids[id] or call("SISMEMBER", ledger, id) == 1) then
      kept = id
    elseif key ~= "" then kept, print, is_to_come = kept_under(key, row[7]) end
    if kept then
      if is_to_come then return nil, nil, {"unfinished", position - 1, kept} end
      -- without a fingerprint a stranger wrote the key: its word is taken
      if print and print ~= row[8] then return nil, nil, {"conflict", position - 1, kept} end
      ids[position] = kept
      existing[#existing + 1] = position - 1
    else
      ids[position] = id
      -- an id made for this job a moment ago is nobody else's
      if not row[9] or not planned_ids[id] and must_hold(JOB .. id, "hash") == "none" then
        planned_ids[id] = true
        if key ~= "" then planned_keys[key] = {id, row[8]} end
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
  -- what an earlier life of this id left would end a reader's tail too soon
  if row[9] then call("DEL", job .. ":events", job .. ":deliveries") end
  tell(id, task, ttl, "queued", NOW, "gateway.enqueue", "{}")
  if row[6] ~= "" then
    call("SET", row[6], id, "EX", ttl)
    call("SET", row[7], row[8], "EX", ttl)
  end
  call("XADD", STREAM, "*", "job_id", id, "task", task, "payload", payload)
end
