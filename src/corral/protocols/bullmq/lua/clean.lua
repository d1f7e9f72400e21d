-- clean: delete jobs of one state that are older than a moment, but not the next job of a scheduler.
-- KEYS     keys.fixed
-- ARGV[1]  completed, failed, delayed, prioritized, waiting-children, wait, paused or active
-- ARGV[2]  moment ms   ARGV[3] most jobs looked at   ARGV[4] jobs skipped so far
-- ARGV[5]  jobs deleted so far   ARGV[6] 1 where this call is the last
-- Returns  how many were looked at, [id, …] that were deleted
-- use delete_jobs
local name, moment, most, skipped = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local source, state = PREFIX .. name, queue_state()
-- the fields that tell how old a job is; none for a set that is scored by that time
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
  if is_list then return call("LRANGE", source, -(skipped + most), -(skipped + 1)) end
  return call("ZRANGEBYSCORE", source, 0, ages and "+inf" or moment, "LIMIT", skipped, most)
end

local function is_old(id)
  for _, at in ipairs(call("HMGET", PREFIX .. id, unpack(ages))) do
    if at then return tonumber(at) <= moment end
  end
  return true
end

local function may_delete(id)
  if not ages then return true end
  if name == "active" and call("EXISTS", PREFIX .. id .. ":lock") == 1 then return false end
  return not is_next_of_scheduler(id) and is_old(id)
end

local ids, removed = look(), {}
for i, id in ipairs(ids) do
  if may_delete(id) then
    delete_job(id, state)
    removed[#removed + 1] = id
    -- marked by an empty id, which no job has, and removed below in one pass
    if is_list then call("LSET", source, -(skipped + #ids) + i - 1, "") end
  end
end
if is_list then
  if #removed > 0 then call("LREM", source, -#removed, "") end
else
  remove_members(source, removed)
end
if ARGV[6] == "1" or #ids < most then
  call("XADD", EVENTS, "*", "event", "cleaned", "count", tonumber(ARGV[5]) + #removed)
end
return {#ids, removed}
