-- Make delayed jobs that are due claimable, at most 500; returns how many.
-- use queue
-- use groups
local function promote_due(now, state)
  local ids = call("ZRANGEBYSCORE", DELAYED, 0, (now + 1) * 4096 - 1, "LIMIT", 0, 500)
  if #ids == 0 then return 0 end
  call("ZREM", DELAYED, unpack(ids))
  for _, id in ipairs(ids) do
    local job = PREFIX .. id
    local row = call("HMGET", job, "name", "priority", "group")
    if row[1] then -- an id whose job does not exist must not make half a job
      local priority = tonumber(row[2]) or 0
      if row[3] then
        groups_of(state).add(id, row[3])
      elseif priority == 0 then
        call("LPUSH", state.target, id)
      else
        call("ZADD", PRIORITIZED, priority_score(priority), id)
      end
      call("XADD", EVENTS, "*", "event", "waiting", "jobId", id, "prev", "delayed")
      call("HSET", job, "delay", 0)
    end
  end
  wake(is_blocked(state))
  return #ids
end
