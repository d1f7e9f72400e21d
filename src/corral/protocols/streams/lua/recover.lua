-- recover: one page of entries whose workers have gone silent: back to the queue, or ended when delivered too often.
-- KEYS     jobs:stream jobs:events jobs:workers
-- ARGV[1]  .. [5] as in parts/story   ARGV[6] most deliveries   ARGV[7] ms of silence allowed to a stranger
-- ARGV[8]  where the page begins: "-", or "(" and the last id   ARGV[9] entries a page
-- ARGV[10] ms after which a worker with nothing pending is forgotten
-- Returns  [put back id, …], [ended id, …], where the next page begins or "", [expired, over, malformed]
-- use holding
local WORKERS = KEYS[3]
local most, patience, page = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[9])
-- an entry without a body cannot be run again, so its owner may take its time to settle it
local BODILESS_MS = 3600000

local seen_at, lock_of, shortest = {}, {}, patience
local registry = call("HGETALL", WORKERS)
for i = 1, #registry, 2 do
  local seen, lock = string.match(registry[i + 1], "^(%d+) (%d+)$")
  if seen then
    seen_at[registry[i]], lock_of[registry[i]] = tonumber(seen), tonumber(lock)
    shortest = math.min(shortest, tonumber(lock))
  end
end

local function forget_silent_workers()
  local consumers = try("XINFO", "CONSUMERS", STREAM, GROUP)
  local standing = {}
  for _, flat in ipairs(consumers.err and {} or consumers) do
    local consumer = fields_of(flat)
    standing[consumer.name] = consumer.pending
  end
  for name, seen in pairs(seen_at) do
    if tonumber(NOW) - seen > tonumber(ARGV[10]) and (standing[name] or 0) == 0 then
      if standing[name] then call("XGROUP", "DELCONSUMER", STREAM, GROUP, name) end
      call("HDEL", WORKERS, name)
    end
  end
end

local requeued, ended = {}, {}
local skipped = {expired = 0, over = 0, malformed = 0}

local function rescue(row)
  local entry, idle, deliveries = row[1], row[3], row[4]
  local found = call("XRANGE", STREAM, entry, entry)
  if not found[1] then
    if idle < BODILESS_MS then return nil end
    drop(entry)
    return "malformed"
  end
  local field = fields_of(found[1][2])
  local id = field.job_id
  if not is_id(id) then
    drop(entry)
    return "malformed"
  end
  local known = call("HMGET", JOB .. id, "status", "ttl_s", "task")
  if not known[1] or OVER[known[1]] then
    drop(entry)
    return known[1] and "over" or "expired"
  end
  local ttl, task = lifetime(known[2]), field.task or known[3] or ""
  local spent = spent_before(id) + deliveries
  if spent >= most then
    local reason = string.format('{"message":"abandoned: delivered %d times, and no worker finished it"}', spent)
    finish(entry, id, task, ttl, "error", reason, reason, NOW, "worker.recover", true)
    ended[#ended + 1] = id
  else
    put_back(entry, found[1][2], id, task, ttl, spent, NOW, "worker.recover")
    requeued[#requeued + 1] = id
  end
  return nil
end

local rows = try("XPENDING", STREAM, GROUP, "IDLE", shortest, ARGV[8], "+", page)
if rows.err then rows = {} end
for _, row in ipairs(rows) do
  if row[3] >= (lock_of[row[2]] or patience) then
    local why = each_alone(rescue, row)
    if why and not skipped[why] then
      -- keys of the wrong type: such a job can neither run nor end
      drop(row[1])
      why = "malformed"
    end
    if why then skipped[why] = skipped[why] + 1 end
  end
end
clear_dropped()
if ARGV[8] == "-" then forget_silent_workers() end
local next_page = #rows == page and "(" .. rows[#rows][1] or ""
return {requeued, ended, next_page, {skipped.expired, skipped.over, skipped.malformed}}
