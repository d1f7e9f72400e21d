-- Settle claimed jobs. A row is codec.BridgemqSettlementRow:
-- [id, fence, verb, at ms, type, attempt, result, reason, traces, event data, delay ms, is front, keeps data, summary,
--  records of the attempts made in vain or "", group or ""]
-- use groups
local NO_JOB, NO_LOCK, OTHERS, NOT_ACTIVE = 1, 2, 3, 4

-- Returns 0 while this claim of this worker is held, else the code for why not; writes nothing.
local function held(fence, lock, current, is_active)
  if not lock then return NO_LOCK end
  if lock ~= WORKER or tonumber(current or 0) ~= fence then return OTHERS end
  return is_active == 1 and 0 or NOT_ACTIVE
end

-- The same of each row [id, fence, …] whose lock and fence are among KEYS, in order; a job counts once.
local function held_of(rows)
  local fences = call("MGET", unpack(KEYS, FIXED + 1, FIXED + 2 * #rows))
  local ids, codes, seen = {}, {}, {}
  for position, row in ipairs(rows) do ids[position] = row[1] end
  local active = call("SMISMEMBER", ACTIVE, unpack(ids))
  for position, row in ipairs(rows) do
    local is_active = seen[row[1]] and 0 or active[position]
    codes[position] = held(row[2], fences[2 * position - 1], fences[2 * position], is_active)
    if codes[position] == 0 then seen[row[1]] = true end
  end
  return codes
end

-- Jobs to be released after a batch, for all of them at once.
local leaving, spent, freed = {}, {}, {}

local function leave(id, kind)
  leaving[#leaving + 1] = id
  spent[#spent + 1] = JOBS .. "lock:" .. id
  freed[kind] = (freed[kind] or 0) + 1
end

local function release_all()
  in_chunks(spent, 1000, function(from, to) call("DEL", unpack(spent, from, to)) end)
  in_chunks(leaving, 1000, function(from, to)
    try("HDEL", HOLDERS, unpack(leaving, from, to))
    try("SREM", CANCELLING, unpack(leaving, from, to))
    call("SREM", ACTIVE, unpack(leaving, from, to))
  end)
  for kind, count in pairs(freed) do free_slots(kind, count) end
end

-- Returns false where the job was deleted while it ran, which the first write shows.
local function complete(row, id, result_s)
  local data = JOBS .. "data:" .. id
  local is_there = row[13] and call("EXPIRE", data, result_s) or call("DEL", data)
  if is_there == 0 then return false end
  call("SET", JOBS .. "result:" .. id, row[7], "EX", result_s)
  call("SET", JOBS .. "status:" .. id, "completed", "EX", result_s)
  call("SET", JOBS .. "summary:" .. id, row[14], "EX", result_s)
  spent[#spent + 1] = JOBS .. "attempts:" .. id
  spent[#spent + 1] = JOBS .. "failure:" .. id
  call("EXPIRE", JOBS .. "fence:" .. id, result_s)
  call("EXPIRE", JOBS .. "progress:" .. id, result_s)
  call("EXPIRE", JOBS .. "log:" .. id, result_s)
  return true
end

local function note_failure(row, id)
  call("HSET", JOBS .. "failure:" .. id, "reason", row[8], "traces", row[9], "at", row[4], "worker", WORKER)
  if row[15] ~= "" then call("HSET", JOBS .. "failure:" .. id, "attempts", row[15]) end
  return call("INCR", JOBS .. "attempts:" .. id)
end

local function delay_job(row, id, status)
  call("ZADD", DELAYED, row[4] + row[11], id)
  call("SET", JOBS .. "status:" .. id, status)
end

local WRITE = {
  completed = function(row, id, result_s)
    return complete(row, id, result_s) and "completed" or nil
  end,
  dead = function(row, id, result_s)
    note_failure(row, id)
    call("SET", JOBS .. "result:" .. id, row[7], "EX", result_s)
    call("SET", JOBS .. "status:" .. id, "dead")
    call("LPUSH", DEAD, id)
    return "dead"
  end,
  retry = function(row, id, _, queue)
    note_failure(row, id)
    if row[11] > 0 then
      -- `failed` is the document's word for a job that waits for its next attempt
      delay_job(row, id, "failed")
    else
      wait_in_place(id, {queue = queue, group = text_of(row[16]), priority = row[12] and FRONT_FROM or 0})
    end
    return "retry"
  end,
  postponed = function(row, id)
    delay_job(row, id, "delayed")
    return "delayed"
  end,
  released = function(row, id, _, queue)
    wait_in_place(id, {queue = queue, group = text_of(row[16]), priority = FRONT_FROM}, true)
    return "waiting"
  end,
}

local SPENDS = {completed = true, dead = true, retry = true}
local ENDS = {completed = true, dead = true}

local function settle(row, queue, result_s)
  local id = row[1]
  local job = {type = row[5], queue = queue}
  local kind
  if row[3] == "completed" or call("EXISTS", JOBS .. "data:" .. id) == 1 then
    if not ENDS[row[3]] and call("SISMEMBER", CANCELLING, id) == 1 then
      if row[3] == "retry" then note_failure(row, id) end
      end_cancelled(id, job, result_s)
      leave(id, row[5])
      return 0
    end
    if text_of(row[16]) then groups_of(queue).leave(id, row[16]) end
    kind = WRITE[row[3]](row, id, result_s, queue)
  end
  leave(id, row[5])
  -- it was deleted while it ran
  if not kind then return NO_JOB end
  local now = NOW
  NOW = integer(row[4])
  if SPENDS[kind] then
    emit(kind, id, job, row[10], "prev", "active", "attempt", integer(row[6]))
  else
    emit(kind, id, job, row[10], "prev", "active")
  end
  NOW = now
  return 0
end

-- Returns [0 | code | error text, …]
local function settle_all(rows, queue, result_s)
  if #rows == 0 then return {} end
  local codes, ended, oldest = held_of(rows), {}, 0
  for position, row in ipairs(rows) do
    if codes[position] == 0 then codes[position] = isolated(settle, row, queue, result_s) end
    if codes[position] == 0 and row[3] == "completed" then
      ended[#ended + 1] = row[4]
      ended[#ended + 1] = row[1]
      oldest = row[4] - result_s * 1000
    end
  end
  release_all()
  if #ended > 0 then
    call("ZADD", COMPLETED, unpack(ended))
    local past = call("ZRANGEBYSCORE", COMPLETED, "-inf", oldest, "LIMIT", 0, 500)
    if #past > 0 then call("ZREM", COMPLETED, unpack(past)) end
  end
  return codes
end
