-- Due schedules are leased: their score is moved into the future in the same step, and the old one is kept beside,
-- so that another scheduler can take over where the first did not finish.
-- A lease is "due ms:lease ms"; it is valid while the score is still that lease.
local LEASES

local function lease_of(id, score)
  local due, lease = string.match(call("HGET", LEASES, id) or "", "^(%d+):(%d+)$")
  if due and tonumber(lease) == score then return tonumber(due) end
  return nil
end

-- Make the schedules due again that a leader took and did not fire before it lost its leadership.
local function return_leases()
  local leases = call("HGETALL", LEASES)
  for i = 1, #leases, 2 do
    local score = call("ZSCORE", CRON, leases[i])
    local due = score and lease_of(leases[i], tonumber(score))
    if due then call("ZADD", CRON, "XX", due, leases[i]) end
  end
  call("DEL", LEASES)
end

-- Returns [{id, due, lease}, …]; due is when the schedule should have fired first.
local function lease_due(most, lease_ms)
  local found = call("ZRANGEBYSCORE", CRON, "-inf", NOW, "WITHSCORES", "LIMIT", 0, most)
  local taken = {}
  for i = 1, #found, 2 do
    local id, score = found[i], tonumber(found[i + 1])
    local due = lease_of(id, score) or score
    local lease = tonumber(NOW) + lease_ms
    call("ZADD", CRON, "XX", lease, id)
    call("HSET", LEASES, id, integer(due) .. ":" .. integer(lease))
    taken[#taken + 1] = {id = id, due = due, lease = lease}
  end
  return taken
end
