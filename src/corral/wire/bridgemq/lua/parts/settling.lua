-- Write down how claimed jobs ended. A row is endings.Ending:
-- [id, fence, verb, at ms, type, attempt, result, reason, traces, told, delay ms, is front, keeps data, summary]
-- use jobs
local NO_JOB, NO_LOCK, OTHERS, NOT_ACTIVE = 1, 2, 3, 4

-- 0 while this claim of this worker holds the job, else why not. Nothing is written here.
local function held(id, fence, lock, current)
  if not lock then return NO_LOCK end
  if lock ~= SPEAKER or tonumber(current or 0) ~= fence then return OTHERS end
  if call("SISMEMBER", ACTIVE, id) == 0 then return NOT_ACTIVE end
  return 0
end

local function complete(row, id, result_s)
  call("SET", JOBS .. "result:" .. id, row[7], "EX", result_s)
  call("SET", JOBS .. "status:" .. id, "completed", "EX", result_s)
  call("SET", JOBS .. "summary:" .. id, row[14], "EX", result_s)
  if row[13] then
    call("EXPIRE", JOBS .. "data:" .. id, result_s)
  else
    call("DEL", JOBS .. "data:" .. id)
  end
  call("DEL", JOBS .. "attempts:" .. id, JOBS .. "failure:" .. id)
  for _, part in ipairs({"fence:", "progress:", "log:"}) do call("EXPIRE", JOBS .. part .. id, result_s) end
end

local function note_failure(row, id)
  call("HSET", JOBS .. "failure:" .. id, "reason", row[8], "traces", row[9], "at", row[4], "worker", SPEAKER)
  return call("INCR", JOBS .. "attempts:" .. id)
end

local function put_off(row, id, status)
  call("ZADD", DELAYED, row[4] + row[11], id)
  call("SET", JOBS .. "status:" .. id, status)
end

local WRITE = {
  completed = function(row, id, result_s)
    complete(row, id, result_s)
    return "completed"
  end,
  dead = function(row, id, result_s)
    note_failure(row, id)
    call("SET", JOBS .. "result:" .. id, row[7], "EX", result_s)
    call("SET", JOBS .. "status:" .. id, "dead")
    call("LPUSH", DEAD, id)
    return "dead"
  end,
  retry = function(row, id)
    note_failure(row, id)
    if row[11] > 0 then
      -- `failed` is the document's word for a job that waits for its next attempt
      put_off(row, id, "failed")
    else
      enter_waiting(id, row[12] and FRONT_FROM or 0)
    end
    return "retry"
  end,
  postponed = function(row, id)
    put_off(row, id, "delayed")
    return "delayed"
  end,
  released = function(_, id)
    call("LPUSH", WAITING, id)
    call("SET", JOBS .. "status:" .. id, "waiting")
    return "waiting"
  end,
}

local SPENDS = {completed = true, dead = true, retry = true}

local function settle(row, queue, lock, current, result_s)
  local id = row[1]
  local code = held(id, row[2], lock, current)
  if code ~= 0 then return code end
  local job = {type = row[5], queue = queue}
  if call("EXISTS", JOBS .. "data:" .. id) == 0 then
    -- someone deleted it while it ran: there is nothing left to put anywhere
    let_go(id, row[5])
    return NO_JOB
  end
  local kind = WRITE[row[3]](row, id, result_s)
  let_go(id, row[5])
  local now = NOW
  NOW = integer(row[4])
  if SPENDS[kind] then
    tell(kind, id, job, row[10], "prev", "active", "attempt", integer(row[6]))
  else
    tell(kind, id, job, row[10], "prev", "active")
  end
  NOW = now
  return 0
end

-- [0 | code | fault text, …]
local function settle_all(rows, queue, result_s)
  if #rows == 0 then return {} end
  local fences = call("MGET", unpack(KEYS, FIXED + 1, FIXED + 2 * #rows))
  local codes, ended, oldest = {}, {}, 0
  for position, row in ipairs(rows) do
    codes[position] = each_alone(settle, row, queue, fences[2 * position - 1], fences[2 * position], result_s)
    if codes[position] == 0 and row[3] == "completed" then
      ended[#ended + 1] = row[4]
      ended[#ended + 1] = row[1]
      oldest = row[4] - result_s * 1000
    end
  end
  if #ended > 0 then
    call("ZADD", COMPLETED, unpack(ended))
    local past = call("ZRANGEBYSCORE", COMPLETED, "-inf", oldest, "LIMIT", 0, 500)
    if #past > 0 then call("ZREM", COMPLETED, unpack(past)) end
  end
  return codes
end
