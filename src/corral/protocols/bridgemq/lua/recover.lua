-- recover: of a page of active jobs, requeue those of dead workers, or dead-letter them when their attempts are spent
-- or they were to be cancelled.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] where the page begins   ARGV[5] ids a page
-- ARGV[6]  ms a job may be active without lock or holder   ARGV[7] result s   ARGV[8] ms after which a dead worker is forgotten
-- Returns  [requeued id, …], [ended id, …], where the next page begins or "0"
-- use keys
-- use groups
local patience, result_s, forget_ms = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local now = tonumber(NOW)
local WORKERS = ROOT .. "workers:active"

local beating, registered = {}, {}
local function is_beating(worker)
  if beating[worker] == nil then
    beating[worker] = call("EXISTS", ROOT .. "workers:heartbeat:" .. worker) == 1
  end
  return beating[worker]
end

local function is_registered(worker)
  if registered[worker] == nil then registered[worker] = call("SISMEMBER", WORKERS, worker) == 1 end
  return registered[worker]
end

-- A lock is valid while it exists, unless its worker is registered and has no heartbeat.
-- Without a lock, a Corral worker has lost the job; a foreign one need not renew, so its heartbeat counts.
local function is_abandoned(id, lock, packed)
  if lock then return is_registered(lock) and not is_beating(lock), lock end
  if not packed then
    -- claimed by other means: it is watched from now on
    call("HSET", HOLDERS, id, cmsgpack.pack({"?", now, "", ""}))
    return false
  end
  local holder = cmsgpack.unpack(packed)
  if holder[1] == "c" then return true, holder[4] end
  if holder[1] == "s" then return not is_beating(holder[4]), holder[4] end
  return now - holder[2] >= patience, "unknown"
end

local requeued, ended = {}, {}

-- Whether its worker has settled it already, and died before it released it.
local function has_moved(id, raw)
  if not raw then return true end
  local status = call("GET", JOBS .. "status:" .. id)
  if status == "completed" then
    call("DEL", JOBS .. "data:" .. id)
    return true
  end
  if status == "dead" then return true end
  if status == "failed" or status == "delayed" then return call("ZSCORE", DELAYED, id) ~= false end
  return status == "waiting" and call("LPOS", WAITING, id) ~= false
end

local function recover_job(id, worker, packed)
  local raw, job = load_job(id)
  local is_cancelled = call("SISMEMBER", CANCELLING, id) == 1
  release(id, raw and job.type or packed and cmsgpack.unpack(packed)[3] or "")
  if has_moved(id, raw) then return end
  local reason = "its worker " .. worker .. " is gone: the job was abandoned"
  if job.group then groups_of(job.queue).leave(id, job.group) end
  local spent = job.attempt + call("INCR", JOBS .. "attempts:" .. id)
  if is_cancelled then
    end_cancelled(id, job, result_s)
    ended[#ended + 1] = id
  elseif spent >= job.most then
    dead_letter(id, job, reason, "Abandoned", result_s)
    ended[#ended + 1] = id
  else
    call("HSET", JOBS .. "failure:" .. id, "reason", reason, "at", NOW)
    call("HINCRBY", JOBS .. "failure:" .. id, "stalls", 1)
    -- to the front: its turn had come, and abandoned jobs that are side by side stop a worker only once
    wait_in_place(id, {queue = job.queue, group = job.group, priority = FRONT_FROM}, true)
    emit("stalled", id, job, '{"reason":' .. cjson.encode(reason) .. "}", "attempt", integer(spent))
    requeued[#requeued + 1] = id
  end
end

local page = call("SSCAN", ACTIVE, ARGV[4], "COUNT", ARGV[5])
if #page[2] > 0 then
  local locks = {}
  for position, id in ipairs(page[2]) do locks[position] = JOBS .. "lock:" .. id end
  locks = call("MGET", unpack(locks))
  local holders = call("HMGET", HOLDERS, unpack(page[2]))
  for position, id in ipairs(page[2]) do
    local gone, worker = is_abandoned(id, locks[position], holders[position])
    if gone then isolated(recover_job, id, worker, holders[position]) end
  end
end

local function forget_dead_workers()
  for _, worker in ipairs(call("SMEMBERS", WORKERS)) do
    if not is_beating(worker) then
      local raw = try("GET", ROOT .. "workers:" .. worker)
      local fine, metadata = pcall(cjson.decode, type(raw) == "string" and raw or "null")
      local seen = fine and type(metadata) == "table" and number_of(metadata.lastSeen) or 0
      if now - seen > forget_ms then
        call("SREM", WORKERS, worker)
        call("DEL", ROOT .. "workers:" .. worker)
      end
    end
  end
end

if ARGV[4] == "0" then forget_dead_workers() end
return {requeued, ended, page[1]}
