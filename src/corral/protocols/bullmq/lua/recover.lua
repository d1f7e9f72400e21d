-- recover: requeue jobs that had no lock in two sweeps, then note the suspects for the next one.
-- KEYS     keys.fixed
-- ARGV[1]  now ms   ARGV[2] most stalls a job may have   ARGV[3] ms until the next sweep may run
-- Returns  [id, …] requeued (one that stalled too often will fail when it is claimed), ms until the next sweep
--          may run or -1, 1 where this one was left out because another worker had just swept, else 0
-- use queue
-- use active_list
local TOO_OFTEN = "job stalled more than allowable limit"

if call("EXISTS", STALLED_CHECK) == 1 then return {{}, call("PTTL", STALLED_CHECK), 1} end
call("SET", STALLED_CHECK, ARGV[1], "PX", ARGV[3])
local state = queue_state()
call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state))

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
  local fine, opts = pcall(cjson.decode, call("HGET", job, "opts") or "{}")
  return fine and type(opts) == "table" and opts["repeat"] ~= nil and opts["repeat"] ~= cjson.null
end

local suspects = call("SMEMBERS", STALLED)
local requeued = {}
if #suspects > 0 then
  call("DEL", STALLED)
  local active = call("LRANGE", ACTIVE, 0, -1)
  local left = remove_from_active(active, unlocked(suspects))
  for _, id in ipairs(suspects) do
    local job = PREFIX .. id
    if left[id] and string.sub(id, 1, 2) ~= "0:" and call("EXISTS", job) == 1 then
      if call("HINCRBY", job, "stc", 1) > tonumber(ARGV[2]) and not is_scheduled(job) then
        call("HSET", job, "defa", TOO_OFTEN)
      end
      call("RPUSH", state.target, id)
      wake(is_blocked(state))
      call("XADD", EVENTS, "*", "event", "waiting", "jobId", id, "prev", "active")
      call("XADD", EVENTS, "*", "event", "stalled", "jobId", id)
      requeued[#requeued + 1] = id
    end
  end
end

local active = call("LRANGE", ACTIVE, 0, -1)
in_chunks(active, 5000, function(from, to) call("SADD", STALLED, unpack(active, from, to)) end)
return {requeued, call("PTTL", STALLED_CHECK), 0}
