-- recover: requeue jobs that had no lock in two sweeps, then note the suspects for the next one.
-- KEYS     keys.fixed
-- ARGV[1]  now ms   ARGV[2] most stalls a job may have   ARGV[3] ms until the next sweep may run, or "" to continue one
-- Returns  [id, …] requeued (one that stalled too often will fail when it is claimed), ms until the next sweep
--          may run or -1, "swept"; "left out" where another worker has just swept; "more" where suspects are left
-- use queue
-- use active_list
-- use groups
local TOO_OFTEN = "job stalled more than allowable limit"
local MOST = 500 -- suspects looked at in one call

local state = queue_state()
if ARGV[3] ~= "" then
  if call("EXISTS", STALLED_CHECK) == 1 then return {{}, call("PTTL", STALLED_CHECK), "left out"} end
  call("SET", STALLED_CHECK, ARGV[1], "PX", ARGV[3])
  call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state))
end

-- {id = true} of the suspects without a lock.
local function unlocked(suspects)
  local ids = {}
  in_chunks(suspects, 1000, function(from, to)
    local names = {}
    for i = from, to do names[#names + 1] = PREFIX .. suspects[i] .. ":lock" end
    for i, lock in ipairs(call("MGET", unpack(names))) do
      if not lock then ids[suspects[from + i - 1]] = true end
    end
  end)
  return ids
end

local function is_scheduled(job)
  if is_six(state) then
    local scheduler = call("HGET", job, "rjk")
    return scheduler and (call("EXISTS", REPEAT .. ":" .. scheduler) == 1 or call("ZSCORE", REPEAT, scheduler))
  end
  local fine, opts = pcall(cjson.decode, call("HGET", job, "opts") or "{}")
  return fine and type(opts) == "table" and opts["repeat"] ~= nil and opts["repeat"] ~= cjson.null
end

-- those that are not looked at stay suspects
local suspects = call("SMEMBERS", STALLED)
local is_last = #suspects <= MOST
if is_last then
  call("DEL", STALLED)
else
  suspects = {unpack(suspects, 1, MOST)}
  call("SREM", STALLED, unpack(suspects))
end
local requeued = {}
local gone = unlocked(suspects)
if next(gone) then
  local left = remove_from_active(call("LRANGE", ACTIVE, 0, -1), gone)
  for _, id in ipairs(suspects) do
    local job = PREFIX .. id
    if left[id] and string.sub(id, 1, 2) ~= "0:" and call("EXISTS", job) == 1 then
      if call("HINCRBY", job, "stc", 1) > tonumber(ARGV[2]) and not is_scheduled(job) then
        call("HSET", job, "defa", TOO_OFTEN)
      end
      local group = state.groups and call("HGET", job, "group")
      if group then
        groups_of(state).leave(id, job)
        groups_of(state).add(id, group, true)
      else
        call("RPUSH", state.target, id)
      end
      wake(is_blocked(state))
      call("XADD", EVENTS, "*", "event", "waiting", "prev", "active", "jobId", id)
      call("XADD", EVENTS, "*", "event", "stalled", "jobId", id)
      requeued[#requeued + 1] = id
    end
  end
end

if not is_last then return {requeued, call("PTTL", STALLED_CHECK), "more"} end
local active = call("LRANGE", ACTIVE, 0, -1)
in_chunks(active, 5000, function(from, to) call("SADD", STALLED, unpack(active, from, to)) end)
return {requeued, call("PTTL", STALLED_CHECK), "swept"}
