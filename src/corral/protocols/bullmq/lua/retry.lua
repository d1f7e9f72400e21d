-- retry: put ended jobs back in the queue.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [[id, is lifo], …]   ARGV[2] 1 with all attempts anew, else ""
-- Returns  [id, …] that were requeued
-- use queue
-- use parents
-- use groups
local state = queue_state()
local done = {}
for _, row in ipairs(cmsgpack.unpack(ARGV[1])) do
  local id = row[1]
  local job = PREFIX .. id
  local previous, field
  if call("EXISTS", job) == 1 then
    if call("ZREM", FAILED, id) == 1 then
      previous, field = "failed", "failedReason"
    elseif call("ZREM", COMPLETED, id) == 1 then
      previous, field = "completed", "returnvalue"
    end
  end
  if previous then
    call("HDEL", job, "finishedOn", "processedOn", field)
    if ARGV[2] == "1" then call("HDEL", job, "atm", "attemptsMade") end
    local priority = is_six(state) and tonumber(call("HGET", job, "priority")) or 0
    local group = state.groups and call("HGET", job, "group")
    if group then
      groups_of(state).add(id, group, row[2])
    elseif priority > 0 then
      call("ZADD", PRIORITIZED, priority_score(priority), id)
    else
      call(row[2] and "RPUSH" or "LPUSH", state.target, id)
    end
    wake(is_blocked(state))
    parents_of(state).wait_again(job, previous)
    call("XADD", EVENTS, "MAXLEN", "~", kept_events(state), "*", "event", "waiting", "jobId", id,
         "prev", previous)
    done[#done + 1] = id
  end
end
return done
