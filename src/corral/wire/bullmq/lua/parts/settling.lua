-- Write down how claimed jobs ended. A row is
-- [id, receipt, verb, at ms, attempts made, value, kept count (-1 all), kept seconds or false,
--  trace or "", attempts allowed, delay ms, is lifo, is recent]
-- use promotion

local METRICS = {completed = "metrics:completed", failed = "metrics:failed"}

-- One more finished job in this minute's count; older minutes move into the list of points.
local function collect_metrics(verb, points, at)
  local counter = PREFIX .. METRICS[verb]
  local count = call("HINCRBY", counter, "count", 1) - 1
  local row = call("HMGET", counter, "prevTS", "prevCount")
  if not row[1] then
    call("HSET", counter, "prevTS", at, "prevCount", 0)
    return
  end
  local minutes = math.min(math.floor(at / 60000) - math.floor(tonumber(row[1]) / 60000), points)
  if minutes <= 0 then return end
  call("LPUSH", counter .. ":data", count - tonumber(row[2]))
  for _ = 2, minutes do call("LPUSH", counter .. ":data", 0) end
  call("LTRIM", counter .. ":data", 0, points - 1)
  call("HSET", counter, "prevCount", count, "prevTS", at)
end

-- Drop finished jobs past their count or age, at most 500 a call: the rest goes with the next.
local function evict(set, kept_count, kept_seconds, at)
  local ids = {}
  if kept_seconds then
    ids = call("ZRANGEBYSCORE", set, "-inf", at - kept_seconds * 1000, "LIMIT", 0, 500)
  end
  if kept_count > 0 and #ids < 500 then
    local surplus = call("ZCARD", set) - #ids - kept_count
    if surplus > 0 then
      local oldest = call("ZRANGE", set, #ids, #ids + math.min(surplus, 500 - #ids) - 1)
      for _, id in ipairs(oldest) do ids[#ids + 1] = id end
    end
  end
  if #ids == 0 then return end
  for _, id in ipairs(ids) do remove_keys(PREFIX .. id) end
  call("ZREM", set, unpack(ids))
end

local function leave_active(row)
  -- a job that ran for long lies near the far end of the list, a fresh one near the head
  return call("LREM", ACTIVE, row[13] and 1 or -1, row[1]) == 1
end

local function finish(row, job, points)
  local id, verb, at, value, kept = row[1], row[3], row[4], row[6], row[7]
  local field = verb == "completed" and "returnvalue" or "failedReason"
  if kept == 0 then
    remove_keys(job)
  else
    call("ZADD", verb == "completed" and COMPLETED or FAILED, at, id)
    if verb == "completed" then
      call("HSET", job, "atm", row[5], field, value, "finishedOn", at)
    else
      call("HSET", job, "atm", row[5], field, value, "finishedOn", at, "stacktrace", row[9])
      call("HDEL", job, "defa")
    end
  end
  call("XADD", EVENTS, "*", "event", verb, "jobId", id, field, value, "prev", "active")
  if verb == "failed" and row[5] >= row[10] then
    call("XADD", EVENTS, "*", "event", "retries-exhausted", "jobId", id, "attemptsMade", row[5])
  end
  if points then collect_metrics(verb, points, at) end
end

local function requeue(row, job, state)
  local priority = tonumber(call("HGET", job, "priority")) or 0
  if row[3] == "released" then
    if priority > 0 then
      call("ZADD", PRIORITIZED, priority * 4294967296, row[1])
    else
      call("RPUSH", state.target, row[1])
      wake(is_blocked(state))
    end
  else
    if priority > 0 then
      call("ZADD", PRIORITIZED, priority_score(priority), row[1])
    else
      call(row[12] and "RPUSH" or "LPUSH", state.target, row[1])
    end
    wake(is_blocked(state))
    call("HSET", job, "atm", row[5], "failedReason", row[6], "stacktrace", row[9])
  end
  call("XADD", EVENTS, "*", "event", "waiting", "jobId", row[1], "prev", "active")
end

local function put_off(row, job)
  if row[3] == "delayed" then
    call("HSET", job, "delay", row[11], "atm", row[5], "failedReason", row[6], "stacktrace", row[9])
  else
    call("HSET", job, "delay", row[11])
  end
  delay_job(row[1], row[4] + row[11])
end

-- 0, or why this one was not settled; nothing is written before the last check has passed
local function settle(row, lock, family, state, points)
  local id, verb = row[1], row[3]
  local job = PREFIX .. id
  if call("EXISTS", job) == 0 then return -1 end
  if verb == "completed" and family then
    if call("SCARD", job .. ":dependencies") ~= 0 then return -4 end
    if call("ZCARD", job .. ":unsuccessful") ~= 0 then return -9 end
  end
  if not lock then return -2 end
  if lock ~= row[2] then return -6 end
  if verb == "waiting" then promote_due(row[4], state) end
  if not leave_active(row) then return -3 end
  if verb == "completed" or verb == "failed" then
    finish(row, job, points)
  elseif verb == "delayed" or verb == "postponed" then
    put_off(row, job)
  else
    requeue(row, job, state)
  end
  return 0
end

-- Do any of these jobs have children that matter? One call answers for the usual batch of none.
local function have_families(rows)
  local names = {}
  for i, row in ipairs(rows) do
    local job = PREFIX .. row[1]
    names[2 * i - 1] = job .. ":dependencies"
    names[2 * i] = job .. ":unsuccessful"
  end
  return call("EXISTS", unpack(names)) > 0
end

-- Every finished set is trimmed by the policies of the jobs that entered it, in the order they came.
local function evict_for(row)
  if row[7] > 0 or (row[8] and row[7] ~= 0) then
    evict(row[3] == "completed" and COMPLETED or FAILED, row[7], row[8], row[4])
  end
end

-- [[position, code, text], …] of what was not settled, and whether any job has ended
local function settle_all(rows, state, points)
  call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state))
  local family = have_families(rows)
  local locks = call("MGET", unpack(KEYS, FIXED + 1, FIXED + #rows))
  local refused, settled, released, finished = {}, {}, {}, nil
  for i, row in ipairs(rows) do
    local fine, code = pcall(settle, row, locks[i], family, state, points)
    if not fine then
      refused[#refused + 1] = {i, -99, tostring(type(code) == "table" and code.err or code)}
    elseif code ~= 0 then
      refused[#refused + 1] = {i, code, ""}
    else
      settled[#settled + 1] = row[1]
      released[#released + 1] = KEYS[FIXED + i]
      if row[3] == "completed" or row[3] == "failed" then
        -- equal policies in a row need one trim at their end, not one each
        if finished and (finished[3] ~= row[3] or finished[7] ~= row[7] or finished[8] ~= row[8]) then
          evict_for(finished)
        end
        finished = row
      end
    end
  end
  if finished then evict_for(finished) end
  if #settled > 0 then
    call("DEL", unpack(released))
    call("SREM", STALLED, unpack(settled))
    call("SREM", CANCELLING, unpack(settled))
  end
  return refused, finished ~= nil
end
