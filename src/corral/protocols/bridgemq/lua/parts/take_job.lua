-- Whether a worker may claim a job now, and the claim itself.
-- use routing
-- use limits
local GONE, BROKEN = "gone", "broken"

-- Returns "fits"; "other", "limited" or "locked" where it must wait; GONE or BROKEN where it can never run.
-- `queue` nil: any queue, as long as it is not paused.
local function check_job(id, raw, job, worker, queue)
  if not raw then return GONE end
  if job.is_broken then return BROKEN end
  if queue then
    if job.queue ~= queue then return "other" end
  elseif call("SISMEMBER", PAUSED, job.queue) == 1 then
    return "other"
  end
  local fit = fits(job.target, worker)
  if fit == nil then return BROKEN end
  if not fit then return "other" end
  if limit_reached(job) then return "limited" end
  return "fits"
end

-- Why a job that no worker could ever run is dead-lettered.
local function dead_letter_reason(job)
  if job.is_broken then return "its job data is no JSON object", "InvalidJob" end
  return "its target cannot be read: no worker would ever fit it", "InvalidTarget"
end

-- Jobs that were taken, to be written for all of them at once.
local taken_ids, taken_by, taken_status = {}, {}, {}

local function write_taken()
  in_chunks(taken_ids, 1000, function(from, to) call("SADD", ACTIVE, unpack(taken_ids, from, to)) end)
  in_chunks(taken_by, 1000, function(from, to) try("HSET", HOLDERS, unpack(taken_by, from, to)) end)
  in_chunks(taken_status, 1000, function(from, to) call("MSET", unpack(taken_status, from, to)) end)
  taken_ids, taken_by, taken_status = {}, {}, {}
  write_counters()
end

local function append(list, first, second)
  local length = #list
  list[length + 1], list[length + 2] = first, second
end

-- Returns the number of this claim, or nil where the job is locked. The document's lock keeps its meaning;
-- the fence beside it tells two claims of the same worker apart.
local function take(id, job, lock_ms, kind)
  local lock = JOBS .. "lock:" .. id
  if not call("SET", lock, WORKER, "NX", "PX", lock_ms) then return nil end
  local fence = try("INCR", JOBS .. "fence:" .. id)
  if type(fence) ~= "number" then
    call("DEL", lock)
    error(fence.err, 0)
  end
  taken_ids[#taken_ids + 1] = id
  append(taken_by, id, cmsgpack.pack({kind, tonumber(NOW), job.type, WORKER}))
  append(taken_status, JOBS .. "status:" .. id, "active")
  local tally = tally_of(job.type)
  tally.taken = tally.taken + 1
  emit("active", id, job, "")
  return fence
end
