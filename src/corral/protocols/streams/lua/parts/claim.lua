-- Claim entries for a consumer, skipping those that cannot run. A claimed row is
-- [entry, id, task, payload, created ms, ttl s, deliveries before this entry, deliveries of this entry]
-- use parked
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
local function take(entry, field, deliveries)
  local id = field.job_id
  if not is_id(id) then return "malformed" end
  local known = read_job(id, "status", "ttl_s", "created_ts")
  if not known[1] then return "expired" end
  if OVER[known[1]] then return "over" end
  local row = claim_row(entry, field, known, deliveries)
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

local function add_claim(claims, entry, field, deliveries)
  local row = isolated(take, entry, field, deliveries)
  if type(row) == "table" then
    claims.rows[#claims.rows + 1] = row
    claims.bytes = claims.bytes + #row[4]
  else
    local why = skip(entry, field, row)
    claims.skipped[why] = claims.skipped[why] + 1
  end
end

-- Claim parked jobs of the tasks that this worker serves (nil: all); returns the tasks of the others.
local function claim_parked(claims, consumer, want, most_bytes, serves)
  for _, parking in ipairs(parkings()) do
    local missing = want - #claims.rows
    if missing > 0 and claims.bytes < most_bytes and (not serves or serves[parking[2]]) then
      for _, pending in ipairs(call("XPENDING", STREAM, GROUP, "-", "+", math.min(missing, STEP), parking[1])) do
        local entry = pending[1]
        local found = call("XRANGE", STREAM, entry, entry)
        if not found[1] then
          -- its body was trimmed away: it cannot be claimed
          delete_entry(entry)
          claims.skipped.malformed = claims.skipped.malformed + 1
        else
          call("XCLAIM", STREAM, GROUP, consumer, 0, entry, "JUSTID")
          add_claim(claims, entry, fields_of(found[1][2]), pending[4])
        end
      end
    end
  end
  delete_entries()
  local others = {}
  for _, task in ipairs(clean_parkings()) do
    if serves and not serves[task] then others[#others + 1] = task end
  end
  return others
end

-- Returns claimed rows, whether the queue is empty, how many were skipped for each reason, and the tasks of parked jobs
-- that this worker does not serve.
local function claim(consumer, want, most_bytes, serves)
  local claims = {rows = {}, bytes = 0, skipped = {expired = 0, over = 0, malformed = 0}}
  local seen, drained, others = 0, false, {}
  if call("EXISTS", PARKED) == 1 then others = claim_parked(claims, consumer, want, most_bytes, serves) end
  while not drained and #claims.rows < want and seen < MOST_SEEN and claims.bytes < most_bytes do
    local count = math.min(want - #claims.rows, STEP)
    local entries = read_new(consumer, count)
    drained = #entries < count
    seen = seen + #entries
    for _, entry in ipairs(entries) do add_claim(claims, entry[1], fields_of(entry[2]), 1) end
  end
  local skipped = claims.skipped
  return claims.rows, drained, {skipped.expired, skipped.over, skipped.malformed}, others
end
