-- Settle claimed jobs. They come as four lists: the ids, their values, the number of the row of each, and the rows.
-- Completed jobs may share one, so the id and the value are written into the row when it is the job's turn:
-- [id, receipt, verb, at ms, attempts made, value, kept count (-1 all), kept seconds or false,
--  is recent, may have relations
--  and, only of jobs that did not complete, trace or "", attempts allowed, delay ms, is lifo,
--  records of the attempts made in vain or ""]
-- The delay of an "unhandled" one is how long it is left to others, in ms.
-- The value of a job that waits for its children is the key of the one it waits for, or "" for all of them.
-- use promote_due
-- use active_list
-- use deduplication
-- use enqueue
-- use parents
-- use groups

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
local function evict(set, kept_count, kept_seconds, at, state)
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
  for i = #ids, 1, -1 do
    local job = PREFIX .. ids[i]
    -- no parent waits for a completed child; for a failed one it may, where no policy says otherwise
    if set == FAILED then parents_of(state).detach_child(job) end
    remove_keys(job)
  end
  call("ZREM", set, unpack(ids))
end

-- Add to the finished sets, and trim them by the policy of the last job.
local function enter_finished(finished, row, state)
  for verb, set in pairs({completed = COMPLETED, failed = FAILED}) do
    if #finished[verb] > 0 then
      call("ZADD", set, unpack(finished[verb]))
      finished[verb] = {}
    end
  end
  if row[7] > 0 or (row[8] and row[7] ~= 0) then
    evict(row[3] == "completed" and COMPLETED or FAILED, row[7], row[8], row[4], state)
  end
end

-- Whether the oldest of active are just these: jobs claimed and settled together are neighbours there.
local function are_oldest(mine, count)
  local oldest = call("LRANGE", ACTIVE, -count, -1)
  for _, id in ipairs(oldest) do
    if not mine[id] then return false end
  end
  return #oldest == count
end

-- {id = true} of the active where one pass is cheaper than a search for each, and whether they are just these.
local function read_active(ids)
  local count, present = #ids, {}
  if count < 8 then return nil, false end
  for _, id in ipairs(ids) do present[id] = true end
  if are_oldest(present, count) then return present, true end
  if call("LLEN", ACTIVE) > 8 * count then return nil, false end
  present = {}
  for _, id in ipairs(call("LRANGE", ACTIVE, 0, -1)) do present[id] = true end
  return present, false
end

-- Whether this job is active; where it is searched for by itself it is removed at once.
local function leave_active(row, present, gone)
  if present then return present[row[1]] and not gone[row[1]] end
  -- a job that ran for long is near the far end of the list, a recent one near the head
  return call("LREM", ACTIVE, row[9] and 1 or -1, row[1]) == 1
end

-- Returns the prefix of the parent's queue, its id, and the reference with the child's policy.
local function read_reference(key, text)
  local fine, reference = pcall(cjson.decode, text or "")
  if fine and type(reference) == "table" and reference.queueKey and reference.id then
    return reference.queueKey .. ":", reference.id, reference
  end
  local prefix, id = split_key(key)
  return prefix, id, {}
end

-- Add the job that was kept while the one that has ended was active (keep_next in parts/deduplication).
local function add_next(text, at, state)
  local key = PREFIX .. "dn:" .. text
  local row = call("HMGET", key, "name", "data", "opts", "jid", "pk", "pd", "pdk", "rjk")
  if not row[1] then return end
  local count, opts = call("INCR", ID), cjson.decode(row[3])
  local id = row[4] or string.format("%d", count)
  local job, option = PREFIX .. id, opts.de or {}
  local delay, priority = tonumber(opts.delay) or 0, tonumber(opts.priority) or 0
  local relations = {"deid", option.id or text}
  for i, field in ipairs({"parentKey", "parent", false, "rjk"}) do
    if field and row[i + 4] then relations[#relations + 1], relations[#relations + 2] = field, row[i + 4] end
  end
  if option.ttl and option.ttl > 0 and not option.keepLastIfActive then
    call("SET", PREFIX .. "de:" .. text, id, "PX", option.ttl)
  else
    call("SET", PREFIX .. "de:" .. text, id)
  end
  local enqueue, _, close = enqueuing(state)
  call("HSET", job, "name", row[1], "data", row[2], "opts", row[3], "timestamp", at, "delay", delay,
       "priority", priority, unpack(relations))
  call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", row[1])
  enqueue(id, {id, row[1], row[3], tonumber(at), delay, priority, opts.lifo})
  close()
  if row[7] then call("SADD", row[7], job) end
  call("DEL", key)
end

-- A job has ended: release its deduplication and update its parent; returns the parent's key, if it has one.
local function update_relations(row, job, state, finished)
  local at, value = row[4], row[6]
  local relations = call("HMGET", job, "parentKey", "parent", "deid")
  if relations[3] then
    end_deduplication(relations[3], row[1])
    if is_six(state) then add_next(relations[3], at, state) end
  end
  if not relations[1] or relations[1] == "" then return nil end
  -- the parent may be one of those that ended just before
  if state.last_ended then enter_finished(finished, state.last_ended, state) end
  local prefix, id, reference = read_reference(relations[1], relations[2])
  if row[3] == "completed" then
    parents_of(state).child_completed(prefix, id, job, value, at)
  else
    parents_of(state).child_failed(prefix, id, reference, job, value, at)
  end
  return relations[1]
end

-- A field of ours, which other clients pass over: a record of each attempt that failed.
local function write_attempts(row, job)
  if row[15] ~= "" then call("HSET", job, "failedAttempts", row[15]) end
end

local function finish(row, job, finished, points, state)
  local id, verb, at, value = row[1], row[3], row[4], row[6]
  local field = verb == "completed" and "returnvalue" or "failedReason"
  local parent = row[10] and update_relations(row, job, state, finished)
  if row[7] == 0 then
    remove_keys(job)
    if parent then parents_of(state).detach_child(job, parent) end
  elseif verb == "completed" then
    call("HSET", job, "atm", row[5], field, value, "finishedOn", at)
  else
    call("HSET", job, "atm", row[5], field, value, "finishedOn", at, "stacktrace", row[11])
    call("HDEL", job, "defa")
    write_attempts(row, job)
  end
  if row[7] ~= 0 then
    local list = finished[verb]
    list[#list + 1] = at
    list[#list + 1] = id
  end
  call("XADD", EVENTS, "*", "event", verb, "jobId", id, field, value, "prev", "active")
  if verb == "failed" and row[5] >= row[12] then
    call("XADD", EVENTS, "*", "event", "retries-exhausted", "jobId", id, "attemptsMade", row[5])
  end
  if points then collect_metrics(verb, points, at) end
end

local function requeue(row, job, state)
  local priority = tonumber(call("HGET", job, "priority")) or 0
  local group = state.groups and call("HGET", job, "group")
  if row[3] == "released" then
    if group then
      groups_of(state).add(row[1], group, true)
      wake(is_blocked(state))
    elseif priority > 0 then
      call("ZADD", PRIORITIZED, priority * 4294967296, row[1])
    else
      call("RPUSH", state.target, row[1])
      wake(is_blocked(state))
    end
    -- jobId is the last field where no attempt was spent: readers of ours tell it from a retry by that
    call("XADD", EVENTS, "*", "event", "waiting", "prev", "active", "jobId", row[1])
  else
    if group then
      groups_of(state).add(row[1], group, row[14])
    elseif priority > 0 then
      call("ZADD", PRIORITIZED, priority_score(priority), row[1])
    else
      call(row[14] and "RPUSH" or "LPUSH", state.target, row[1])
    end
    wake(is_blocked(state))
    call("HSET", job, "atm", row[5], "failedReason", row[6], "stacktrace", row[11])
    call("XADD", EVENTS, "*", "event", "waiting", "jobId", row[1], "prev", "active")
    write_attempts(row, job)
  end
end

local function delay_settled(row, job, state)
  if row[3] == "delayed" then
    call("HSET", job, "delay", row[13], "atm", row[5], "failedReason", row[6], "stacktrace", row[11])
    write_attempts(row, job)
    -- where BullMQ 6 claims with the same call, it wakes nobody for this job unless there was nothing to claim
    state.owes_marker = row[1] == state.last_id and is_six(state)
    delay_job(row[1], row[4] + row[13], state.owes_marker)
  else
    call("HSET", job, "delay", row[13])
    call("ZADD", DELAYED, delayed_score(row[4] + row[13]), row[1])
    call("XADD", EVENTS, "*", "event", "delayed", "delay", row[4] + row[13], "jobId", row[1])
    wake_when_due()
  end
end

local function await_children(row)
  call("ZADD", WAITING_CHILDREN, row[4], row[1])
  call("XADD", EVENTS, "*", "event", "waiting-children", "jobId", row[1], "prev", "active")
end

-- Returns the keys of these jobs, whether some do not exist, and whether some have children.
local function survey(ids)
  local jobs, parents = {}, {}
  for i, id in ipairs(ids) do
    local job = PREFIX .. id
    jobs[i] = job
    parents[2 * i - 1] = job .. ":dependencies"
    parents[2 * i] = job .. ":unsuccessful"
  end
  return jobs, call("EXISTS", unpack(jobs)) < #ids, call("EXISTS", unpack(parents)) > 0
end

-- Returns 0, or the code for why this one cannot be settled; writes nothing.
local function check(row, job, lock, some_missing, some_children)
  if some_missing and call("EXISTS", job) == 0 then return -1 end
  if row[3] == "completed" then
    if some_children then
      if call("SCARD", job .. ":dependencies") ~= 0 then return -4 end
      if call("ZCARD", job .. ":unsuccessful") ~= 0 then return -9 end
    end
  elseif row[3] == "waiting-children" then
    if not some_children then return 1 end
    if call("ZCARD", job .. ":unsuccessful") ~= 0 then return -9 end
    local pending
    if row[6] == "" then
      pending = call("SCARD", job .. ":dependencies")
    else
      pending = call("SISMEMBER", job .. ":dependencies", row[6])
    end
    if pending == 0 then return 1 end
  end
  if not lock then return -2 end
  return lock == row[2] and 0 or -6
end

local function write(row, job, state, finished, points)
  local verb = row[3]
  if state.groups and row[10] then groups_of(state).leave(row[1], job) end
  if verb == "completed" or verb == "failed" then
    finish(row, job, finished, points, state)
  elseif verb == "delayed" or verb == "postponed" then
    delay_settled(row, job, state)
  elseif verb == "waiting-children" then
    await_children(row)
  else
    requeue(row, job, state)
  end
end

-- Returns [[number, code, text], …] of those not settled, and whether the last settled job has ended.
local function settle_all(ids, values, numbers, rows, state, points)
  local jobs, some_missing, some_children = survey(ids)
  local locks = call("MGET", unpack(KEYS, FIXED + 1, FIXED + #ids))
  local present, are_all = read_active(ids)
  local refused, settled, released, gone = {}, {}, {}, {}
  local finished, ended = {completed = {}, failed = {}}, false
  for i, id in ipairs(ids) do
    local row = rows[numbers[i]]
    row[1], row[6] = id, values[i]
    local code, text = check(row, jobs[i], locks[i], some_missing, some_children), ""
    if code == 0 then
      if row[3] == "waiting" then promote_due(row[4], state) end
      if not leave_active(row, present, gone) then code = -3 end
    end
    if code == 0 then
      if #settled == 0 then
        -- before the first event; where none is settled the queue may not exist any more
        call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state))
      end
      if row[3] == "unhandled" then
        -- use unhandled
        resolve_unhandled(row, jobs[i])
      end
      -- jobs in a row with equal policies need one trim in all
      local ends, last = row[3] == "completed" or row[3] == "failed", state.last_ended
      if ends and last and (last[3] ~= row[3] or last[7] ~= row[7] or last[8] ~= row[8]) then
        enter_finished(finished, last, state)
      end
      if present then state.leaving = state.leaving + 1 end
      local fine, problem = pcall(write, row, jobs[i], state, finished, points)
      if fine then
        if ends then state.last_ended = row end
        ended = ends
        settled[#settled + 1] = row[1]
        released[#released + 1] = KEYS[FIXED + i]
        gone[row[1]] = true
      else
        code, text = -99, tostring(type(problem) == "table" and problem.err or problem)
        if present then
          state.leaving = state.leaving - 1
        else
          call("LPUSH", ACTIVE, row[1])
        end
      end
    end
    if code ~= 0 then refused[#refused + 1] = {i, code, text} end
  end
  if state.last_ended then enter_finished(finished, state.last_ended, state) end
  if are_all and #settled == #ids then
    call("LTRIM", ACTIVE, 0, -#ids - 1)
  elseif present and #settled > 0 then
    remove_from_active(call("LRANGE", ACTIVE, 0, -1), gone)
  end
  state.leaving = 0
  if #settled > 0 then
    call("DEL", unpack(released))
    if call("EXISTS", STALLED, CANCELLING) > 0 then
      call("SREM", STALLED, unpack(settled))
      call("SREM", CANCELLING, unpack(settled))
    end
  end
  return refused, ended
end
