-- admit: create one job for a client of the gateway, within the limits of the queue and of that client.
-- KEYS     jobs:stream jobs:events, hash, events and deliveries of the job, the client's quota, its idempotency keys
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] msgpack [row] (parts/create)   ARGV[7] owner or ""
-- ARGV[8]  most jobs undelivered and pending, or ""   ARGV[9] most new jobs of this client, or ""
-- ARGV[10] in so many ms
-- Returns  [word, id, status, created ms, backlog, left of the client's quota, ms until there is more of it]
--          created | replayed; full | limited | conflict | unfinished: then nothing was written
-- use create
-- use backlog
local QUOTA = KEYS[6]
local most, quota, window = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local rows = cmsgpack.unpack(ARGV[6])
local ids, fresh, refused = plan(rows)

-- The quota refills evenly: its key has the time at which it is full again.
local full_again = 0
if quota then
  must_hold(QUOTA, "string")
  full_again = math.max(tonumber(call("GET", QUOTA) or 0) or 0, tonumber(NOW))
end

local function quota_left()
  if not quota then return 0, 0 end
  local each, spent = window / quota, full_again - tonumber(NOW)
  local left = math.floor((window - spent) / each + 0.000001)
  return left, math.ceil(left >= 1 and spent or spent + each - window)
end

local backlog = 0
if most then
  local waiting, pending, last = group_state(STREAM)
  backlog = pending + (waiting or count_after(STREAM, last, most - pending))
end

local function answer(word, id, status, created)
  local left, ms = quota_left()
  return {word, id, status, created, backlog, left, ms}
end

if refused then return answer(refused[1], refused[3], "", "") end
local id = ids[1]
if not fresh[1] then
  local known = call("HMGET", JOB .. id, "status", "created_ts")
  return answer("replayed", id, known[1] or "", known[2] or "")
end
if quota and quota_left() < 1 then return answer("limited", "", "", "") end
if most and backlog >= most then return answer("full", "", "", "") end

create(fresh[1])
backlog = backlog + 1
if ARGV[7] ~= "" then call("HSET", JOB .. id, "client", ARGV[7]) end
if quota then
  full_again = full_again + window / quota
  call("SET", QUOTA, string.format("%.3f", full_again), "PX", math.ceil(full_again - tonumber(NOW)) + 1000)
end
return answer("created", id, "queued", fresh[1][5])
