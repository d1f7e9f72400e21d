-- Whether a claim is still held, and how an entry is requeued or finished.
-- use job_events
local NO_LOCK, OTHERS, GONE, ENDED, CANCELED = 1, 2, 3, 4, 5

-- Returns 0 while the entry is pending for this owner at this delivery, which XACK alone does not check.
local function held(entry, owner, deliveries)
  if is_deleted[entry] then return NO_LOCK end
  local rows = try("XPENDING", STREAM, GROUP, entry, entry, 1)
  if rows.err or #rows == 0 then return NO_LOCK end
  if rows[1][2] ~= owner or rows[1][4] ~= deliveries then return OTHERS end
  return 0
end

-- A pending entry can never be read by ">" again, so the job gets a new entry with the same fields;
-- deliveries in vain are counted beside the job.
local function requeue(entry, body, id, task, ttl, spent, at, step)
  local job = JOB .. id
  emit(id, task, ttl, "queued", at, step, string.format('{"deliveries":%d}', spent))
  call("XADD", STREAM, "*", unpack(body))
  call("HSET", job, "status", "queued", "updated_ts", at)
  if spent > 0 then call("SET", job .. ":deliveries", spent, "EX", ttl) end
  delete_entry(entry)
end

local function spent_before(id)
  return tonumber(call("GET", JOB .. id .. ":deliveries") or 0) or 0
end

local function finish(entry, id, task, ttl, status, value, data, at, step, was_put_back)
  local job = JOB .. id
  emit(id, task, ttl, status, at, step, data)
  call("HSET", job, "status", status, "updated_ts", at,
       "result", status == "done" and value or "", "error", status == "error" and value or "")
  if was_put_back then call("DEL", job .. ":deliveries") end
  delete_entry(entry)
end
