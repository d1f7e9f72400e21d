-- Claim up to `want` jobs under one receipt.
-- use promote_due
-- use groups

-- Milliseconds until the rate limit allows a claim, or 0.
local function limited_for(max)
  if not max or max > tonumber(call("GET", LIMITER) or 0) then return 0 end
  local left = call("PTTL", LIMITER)
  if left == 0 then call("DEL", LIMITER) end
  return math.max(left, 0)
end

-- The next ids to run, wait before prioritized, removed from there.
local function pop_next(count)
  local ids, scores = {}, {}
  while #ids < count do
    local popped = call("RPOP", WAIT, count - #ids)
    if not popped then break end
    for _, id in ipairs(popped) do
      -- "0:…" in the list is an older client's marker, never a job
      if string.sub(id, 1, 2) ~= "0:" then ids[#ids + 1] = id end
    end
  end
  if #ids < count then
    local missing = count - #ids
    local pairs_found = call("ZPOPMIN", PRIORITIZED, missing)
    for i = 1, #pairs_found, 2 do
      ids[#ids + 1] = pairs_found[i]
      scores[#ids] = pairs_found[i + 1]
    end
    if #pairs_found < missing * 2 then call("DEL", PRIORITY_COUNTER) end
  end
  return ids, scores
end

-- Put back, in their old order, those that did not fit into this answer.
local function push_back(ids, scores, from, state)
  for i = #ids, from, -1 do
    if type(scores[i]) == "table" then
      groups_of(state).put_back(ids[i], scores[i][1], scores[i][2])
    elseif scores[i] then
      call("ZADD", PRIORITIZED, scores[i], ids[i])
    else
      call("RPUSH", WAIT, ids[i])
    end
  end
end

-- Lock one job and return its fields as they were before; nil where the job does not exist.
local function begin(id, now, receipt, lock_ms, worker, state)
  local job = PREFIX .. id
  local fields = call("HGETALL", job)
  local size = #fields
  if size == 0 then return nil, 0 end
  -- 114 is "r": comparing a byte is cheaper than making a text
  if string.byte(id) == 114 and string.sub(id, 1, 7) == "repeat:" then state.is_scheduled = true end
  local starts, bytes, chained = "1", 0, false
  for i = 1, size, 2 do
    bytes = bytes + #fields[i + 1]
    local name = fields[i]
    if name == "ats" then
      starts = fields[i + 1] + 1
    elseif name == "rjk" then
      state.is_scheduled = true
    elseif name == "chained" then
      chained = true
    end
  end
  if chained then
    -- use chain
    bytes = bytes + add_given(job, fields)
  end
  call("SET", job .. ":lock", receipt, "PX", lock_ms)
  if worker == "" then
    call("HSET", job, "processedOn", now, "ats", starts)
  else
    call("HSET", job, "processedOn", now, "ats", starts, "pb", worker)
  end
  call("XADD", EVENTS, "*", "event", "active", "jobId", id, "prev", "waiting")
  return fields, bytes
end

-- How many may be claimed now, and why it is fewer than wanted.
local function allowance(want, state, max)
  local allowed, why, till = want, "drained", 0
  if state.concurrency then
    local free = state.concurrency - call("LLEN", ACTIVE)
    if free < allowed then allowed, why = free, "maxed" end
  end
  if max then
    local left = max - tonumber(call("GET", LIMITER) or 0)
    if left > 0 and left < allowed then allowed, why = left, "limited" end
  end
  return allowed, why
end

-- Let the rate limit count claims, in BullMQ 6 not those of jobs that are only to fail; returns how many it counted.
local function count_claims(claims, limit_ms, state)
  local count = #claims
  if is_six(state) then
    for _, row in ipairs(claims) do
      for i = 1, #row[2], 2 do
        if row[2][i] == "defa" then count = count - 1 end
      end
    end
  end
  if count > 0 and call("INCRBY", LIMITER, count) == count then
    call("PEXPIRE", LIMITER, math.floor(math.abs(limit_ms or state.duration)))
  end
  return count
end

-- Returns [[id, fields], …], reason, until ms
local function claim(want, now, receipt, lock_ms, worker, limit_max, limit_ms, max_bytes, state, group_limit)
  -- the worker has given this trip up: nobody would run what it claimed
  if call("EXISTS", PREFIX .. "given-up:" .. receipt) == 1 then return {}, "satisfied", 0 end
  promote_due(now, state)
  local max = state.max or limit_max
  local limited = limited_for(max)
  if limited > 0 then return {}, "limited", now + limited end
  if state.paused then return {}, "paused", 0 end
  local allowed, why = allowance(want, state, max)
  if allowed <= 0 then return {}, "maxed", 0 end

  local ids, scores
  if state.groups then
    -- use pop_mixed
    ids, scores = pop_mixed(allowed, group_limit, now, state)
  else
    ids, scores = pop_next(allowed)
  end
  local claims, active, total = {}, {}, 0
  for i, id in ipairs(ids) do
    local fields, bytes = begin(id, now, receipt, lock_ms, worker, state)
    if fields then
      claims[#claims + 1] = {id, fields}
      active[#active + 1] = id
      total = total + bytes
      if total > max_bytes then
        push_back(ids, scores, i + 1, state)
        break
      end
    end
  end
  if #claims > 0 then
    call("LPUSH", ACTIVE, unpack(active))
    if max and count_claims(claims, limit_ms, state) < #claims and why == "limited" then why = "spared" end
    wake(false)
  end
  if total > max_bytes or #claims == want then return claims, "satisfied", 0 end
  if why == "spared" then
    local others, reason, till = claim(want - #claims, now, receipt, lock_ms, worker, limit_max, limit_ms,
                                       max_bytes - total, state)
    for _, row in ipairs(others) do claims[#claims + 1] = row end
    return claims, reason, till
  end
  -- ids without a job took the places of others: there may be more behind them
  if #ids == allowed and #claims < allowed then return claims, "satisfied", 0 end
  if state.groups and groups_of(state).is_cut then return claims, "satisfied", 0 end
  if #claims < allowed then
    local due, look = next_due(), state.groups and groups_of(state).next_look() or 0
    return claims, "drained", look > 0 and (due == 0 or look < due) and look or due
  end
  if why == "limited" then return claims, why, now + limited_for(max) end
  return claims, why, 0
end
