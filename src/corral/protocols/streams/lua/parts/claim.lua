-- Claim entries for a consumer, skipping those that cannot run. A claimed row is
-- [entry, id, task, payload, created ms, ttl s, deliveries before this entry, deliveries of this entry]
-- use ownership
local STEP, MOST_SEEN = 32, 500

local function claim_row(entry, field, known, deliveries)
  local job = JOB .. field.job_id
  return {entry, field.job_id, field.task or call("HGET", job, "task") or "",
          field.payload or call("HGET", job, "payload") or "", known[3] or NOW, lifetime(known[2]),
          spent_before(field.job_id), deliveries}
end

local function read_new(consumer, count)
  local function read()
    return try("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", count, "STREAMS", STREAM, ">")
  end
  local answer = read()
  if answer and answer.err then
    -- from 0: jobs queued before the first worker are not lost
    call("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM")
    answer = read()
    if answer and answer.err then raise(answer.err) end
  end
  return answer and answer[1][2] or {}
end

-- Returns the claimed row, or the word for why this entry is skipped.
local function take(entry, field)
  local id = field.job_id
  if not is_id(id) then return "malformed" end
  local known = read_job(id, "status", "ttl_s", "created_ts")
  if not known[1] then return "expired" end
  if OVER[known[1]] then return "over" end
  local row = claim_row(entry, field, known, 1)
  emit(id, row[3], held_lifetime(known[2]), "running", NOW, "worker.start", "{}")
  call("HSET", JOB .. id, "status", "running", "updated_ts", NOW)
  return row
end

local function skip(entry, field, why)
  if why ~= "over" and why ~= "expired" and why ~= "malformed" then
    -- one of its keys has the wrong type: it cannot run, and its hash says why
    try("HSET", JOB .. field.job_id, "status", "error", "updated_ts", NOW,
        "error", '{"message":"a key of this job holds the wrong type"}')
    why = "malformed"
  end
  delete_entry(entry)
  if why ~= "over" then
    emit_shared(field.job_id or "", field.task or "", why, NOW, "worker.start", '{"entry":"' .. entry .. '"}')
  end
  return why
end

-- Returns claimed rows, whether the queue is empty, and how many were skipped for each reason.
local function claim(consumer, want, most_bytes)
  local rows, bytes, seen, drained = {}, 0, 0, false
  local skipped = {expired = 0, over = 0, malformed = 0}
  while not drained and #rows < want and seen < MOST_SEEN and bytes < most_bytes do
    local count = math.min(want - #rows, STEP)
    local entries = read_new(consumer, count)
    drained = #entries < count
    seen = seen + #entries
    for _, entry in ipairs(entries) do
      local field = fields_of(entry[2])
      local row = isolated(take, entry[1], field)
      if type(row) == "table" then
        rows[#rows + 1] = row
        bytes = bytes + #row[4]
      else
        local why = skip(entry[1], field, row)
        skipped[why] = skipped[why] + 1
      end
    end
  end
  return rows, drained, {skipped.expired, skipped.over, skipped.malformed}
end
