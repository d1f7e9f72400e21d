-- promote_jobs: make these delayed jobs claimable now.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [id, …] that were delayed
-- use queue
-- use groups
local state = queue_state()
local done = {}
for _, id in ipairs(ARGV) do
  if call("ZREM", DELAYED, id) == 1 then
    local job = PREFIX .. id
    local priority = tonumber(call("HGET", job, "priority")) or 0
    local group = state.groups and call("HGET", job, "group")
    if group then
      groups_of(state).add(id, group)
    elseif priority == 0 then
      call("LPUSH", state.target, id)
    else
      call("ZADD", PRIORITIZED, priority_score(priority), id)
    end
    wake(is_blocked(state))
    call("XADD", EVENTS, "*", "event", "waiting", "jobId", id, "prev", "delayed")
    call("HSET", job, "delay", 0)
    done[#done + 1] = id
  end
end
return done
