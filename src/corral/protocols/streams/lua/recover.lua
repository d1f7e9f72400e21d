-- recover: requeue a page of entries of silent workers, or end their jobs when delivered too often.
-- KEYS     jobs:stream jobs:events jobs:workers
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] most deliveries   ARGV[7] ms a foreign worker may be silent
-- ARGV[8]  where the page begins: "-", or "(" and the last id   ARGV[9] entries a page
-- ARGV[10] ms after which a worker with nothing pending is forgotten
-- ARGV[11] ms for which parked jobs are left to workers with a handler for them; 0: they are left alone
-- Returns  [requeued id, …], [ended id, …], where the next page begins or "", [expired, over, malformed]
-- use parked
local WORKERS = KEYS[3]
local most, foreign_idle_ms, page = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[9])
-- an entry without a body cannot be requeued, so its owner has longer to settle it
local BODILESS_MS = 3600000

local seen_at, lock_of, shortest = {}, {}, foreign_idle_ms
local registry = call("HGETALL", WORKERS)
for i = 1, #registry, 2 do
  local seen, lock = string.match(registry[i + 1], "^(%d+) (%d+)$")
  if seen then
    seen_at[registry[i]], lock_of[registry[i]] = tonumber(seen), tonumber(lock)
    shortest = math.min(shortest, tonumber(lock))
  end
end

local function delete_silent_workers()
  local consumers = try("XINFO", "CONSUMERS", STREAM, GROUP)
  local pending = {}
  for _, flat in ipairs(consumers.err and {} or consumers) do
    local consumer = fields_of(flat)
    pending[consumer.name] = consumer.pending
  end
  for name, seen in pairs(seen_at) do
    if tonumber(NOW) - seen > tonumber(ARGV[10]) and (pending[name] or 0) == 0 then
      if pending[name] then call("XGROUP", "DELCONSUMER", STREAM, GROUP, name) end
      call("HDEL", WORKERS, name)
    end
  end
end

local requeued, ended = {}, {}
local skipped = {expired = 0, over = 0, malformed = 0}

local function recover_entry(row)
  local entry, idle, deliveries = row[1], row[3], row[4]
  local found = call("XRANGE", STREAM, entry, entry)
  if not found[1] then
    if idle < BODILESS_MS then return nil end
    delete_entry(entry)
    return "malformed"
  end
  local field = fields_of(found[1][2])
  local id = field.job_id
  if not is_id(id) then
    delete_entry(entry)
    return "malformed"
  end
  local known = read_job(id, "status", "ttl_s", "task")
  if not known[1] or OVER[known[1]] then
    delete_entry(entry)
    return known[1] and "over" or "expired"
  end
  local ttl, task = lifetime(known[2]), field.task or known[3] or ""
  local spent = spent_before(id) + deliveries
  if spent >= most then
    local reason = string.format('{"message":"abandoned: delivered %d times, and no worker finished it"}', spent)
    finish(entry, id, task, ttl, "error", reason, reason, NOW, "worker.recover", true)
    ended[#ended + 1] = id
  else
    requeue(entry, found[1][2], id, task, ttl, spent, NOW, "worker.recover")
    requeued[#requeued + 1] = id
  end
  return nil
end

local SERVED_MS = 60000

-- Whether a worker with a handler for this task was there lately; protocols/lua/record.lua writes it.
local function is_served(task, after)
  local served = "corral:streams:" .. string.sub(ROOT, 1, -2) .. ":jobs:served"
  local seen = try("HMGET", served, task, "*")
  if seen.err then return false end
  local last = math.max(tonumber(seen[1] or 0) or 0, tonumber(seen[2] or 0) or 0)
  return tonumber(NOW) - last < math.max(after, SERVED_MS)
end

local function end_parked(entry, task, after)
  local found = call("XRANGE", STREAM, entry, entry)
  local id = found[1] and fields_of(found[1][2]).job_id
  local known = is_id(id) and read_job(id, "status", "ttl_s") or {}
  if not known[1] or OVER[known[1]] then
    delete_entry(entry)
    return
  end
  local reason = cjson.encode({message = string.format("no worker had a handler for task '%s' within %d s", task, after / 1000)})
  finish(entry, id, task, lifetime(known[2]), "error", reason, reason, NOW, "worker.recover", true)
  ended[#ended + 1] = id
end

-- End the jobs that were parked for so long, while no worker has had a handler for them.
local function end_parked_jobs(after)
  for _, parking in ipairs(parkings()) do
    if after > 0 and not is_served(parking[2], after) then
      local overdue = call("XPENDING", STREAM, GROUP, "IDLE", after, "-", "+", page, parking[1])
      for _, row in ipairs(overdue) do isolated(end_parked, row[1], parking[2], after) end
    end
  end
  delete_entries()
  if #clean_parkings() > 0 then
    if call("EXISTS", PARKED) == 0 then call("XADD", PARKED, "*", "task", "") end
    call("EXPIRE", PARKED, PARKED_S)
  end
end

local rows = try("XPENDING", STREAM, GROUP, "IDLE", shortest, ARGV[8], "+", page)
if rows.err then rows = {} end
for _, row in ipairs(rows) do
  -- what is parked is not abandoned
  if string.sub(row[2], 1, #PARKING) == PARKING then row[3] = -1 end
  if row[3] >= (lock_of[row[2]] or foreign_idle_ms) then
    local why = isolated(recover_entry, row)
    if why and not skipped[why] then
      -- keys of the wrong type: such a job can neither run nor end
      delete_entry(row[1])
      why = "malformed"
    end
    if why then skipped[why] = skipped[why] + 1 end
  end
end
delete_entries()
if ARGV[8] == "-" then
  delete_silent_workers()
  end_parked_jobs(tonumber(ARGV[11]))
end
local next_page = #rows == page and "(" .. rows[#rows][1] or ""
return {requeued, ended, next_page, {skipped.expired, skipped.over, skipped.malformed}}
