-- clean: delete jobs of one state that are older than a moment, all but those their schedulers wait for.
-- KEYS     keys.fixed
-- ARGV[1]  completed, failed, delayed, prioritized, waiting-children, wait, paused or active
-- ARGV[2]  moment ms   ARGV[3] most jobs looked at   ARGV[4] jobs left alone so far
-- ARGV[5]  jobs deleted so far   ARGV[6] 1 where this look is the last
-- Returns  how many were looked at, [id, …] that were deleted
-- use sweeping
local name, moment, most, skipped = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local place, state = PREFIX .. name, queue_state()
-- which of its times tells how old a job is; none where the place is in the order of that time already
local AGES = {
  wait = {"finishedOn", "processedOn", "timestamp"},
  paused = {"finishedOn", "processedOn", "timestamp"},
  active = {"finishedOn", "processedOn", "timestamp"},
  delayed = {"processedOn", "timestamp"},
  prioritized = {"timestamp"},
}
local ages = AGES[name]
local is_list = name == "wait" or name == "paused" or name == "active"

local function look()
  if is_list then return call("LRANGE", place, -(skipped + most), -(skipped + 1)) end
  return call("ZRANGEBYSCORE", place, 0, ages and "+inf" or moment, "LIMIT", skipped, most)
end

local function is_old(id)
  for _, at in ipairs(call("HMGET", PREFIX .. id, unpack(ages))) do
    if at then return tonumber(at) <= moment end
  end
  return true
end

local function may_go(id)
  if not ages then return true end
  if name == "active" and call("EXISTS", PREFIX .. id .. ":lock") == 1 then return false end
  return not is_next_of_scheduler(id) and is_old(id)
end

local ids, gone = look(), {}
for i, id in ipairs(ids) do
  if may_go(id) then
    sweep_job(id, state)
    gone[#gone + 1] = id
    -- no job has an empty id, so the place can be found again when all have been looked at
    if is_list then call("LSET", place, -(skipped + #ids) + i - 1, "") end
  end
end
if is_list then
  if #gone > 0 then call("LREM", place, -#gone, "") end
else
  leave_set(place, gone)
end
if ARGV[6] == "1" or #ids < most then
  call("XADD", EVENTS, "*", "event", "cleaned", "count", tonumber(ARGV[5]) + #gone)
end
return {#ids, gone}
