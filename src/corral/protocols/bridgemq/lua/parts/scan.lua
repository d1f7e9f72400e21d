-- Find the first waiting jobs that a worker may claim. Each call looks at the head, until a window of jobs there
-- did not fit, and then at the next window behind a cursor, so that a match behind others' jobs is found after so
-- many calls and no call looks at more than it may. What is in front of the cursor was looked at and does not fit.
-- A cursor is [index, [[id, index], …] seen before it, how many at the head did not fit, their digest,
--              [[type, concurrent, per minute], …] that were limited, look again at ms, calls at the end,
--              [type, …] that the worker has no handler for]
-- use take_job
-- use groups
local MOST_BYTES = 4194304 -- of JSON looked at in each of the two places, and brought in all
local MOST_LIMITED = 32
local CALLS_AT_END = 50
local FETCHED, LARGE = 10, 65536 -- jobs read at once, and how many bytes each may have for that
local TOMBSTONE = ""

local function fresh()
  return {0, {}, 0, "", {}, 0, 0, {}}
end

-- Returns the index of the last seen job that still exists, no further back than it was, and the marks up to it;
-- nil where there is none, or jobs came in front of it.
local function last_seen(marks)
  for rank, mark in ipairs(marks) do
    local id, index = mark[1], mark[2]
    local found = call("LINDEX", WAITING, index) == id and index or call("LPOS", WAITING, id, "MAXLEN", index + 1)
    if found then
      local left = {}
      for i = rank, #marks do left[#left + 1] = {marks[i][1], math.max(marks[i][2] + found - index, 0)} end
      return found, left
    end
  end
  return nil
end

local function is_free_again(limited)
  for _, row in ipairs(limited) do
    if not limit_reached({type = row[1], concurrent = row[2] or nil, per_minute = row[3] or nil}) then return true end
  end
  return false
end

-- The cursor as it is now; a new one where something in front of it may fit after all.
local function restore(packed)
  if packed == "" then return fresh() end
  local cursor = cmsgpack.unpack(packed)
  if cursor[6] > 0 and tonumber(NOW) >= cursor[6] then return fresh() end
  if cursor[7] > CALLS_AT_END or is_free_again(cursor[5]) then return fresh() end
  if cursor[1] > 0 then
    local found, marks = last_seen(cursor[2])
    if not found then return fresh() end
    -- where jobs behind it were removed, those in their place were not looked at
    cursor[1], cursor[2] = found + 1, marks
  end
  return cursor
end

-- Start anew no later than in so many ms.
local function again_at(cursor, ms)
  local at = tonumber(NOW) + ms
  if cursor[6] == 0 or at < cursor[6] then cursor[6] = at end
end

local function note_limited(cursor, job)
  for _, row in ipairs(cursor[5]) do
    if row[1] == job.type then return end
  end
  if #cursor[5] < MOST_LIMITED then
    cursor[5][#cursor[5] + 1] = {job.type, job.concurrent or false, job.per_minute or false}
  else
    again_at(cursor, 1000)
  end
end

-- Most jobs of a long list are for others: the bare JSON shows that before more of it is read.
local function is_for_others(search, id, document)
  local queue = text_of(document.queue) or USUAL_QUEUE
  if queue ~= search.queue then
    search.queues[queue] = true
    return true
  end
  local fit = fits(document.target, search.worker)
  if not fit then return fit == false end
  local kind = text_of(document.type) or ""
  if not search.serves or search.serves[kind] then return false end
  local ids = search.unhandled[kind] or {}
  search.unhandled[kind], ids[#ids + 1] = ids, id
  return true
end

-- Consider one job; returns "taken", "kept", or "dropped" where it can never run.
local function consider(search, id, raw)
  search.bytes = search.bytes + (raw and #raw or 0)
  local document = raw and decoded(raw)
  if document and is_for_others(search, id, document) then return "kept" end
  local job = document and described(document) or UNREADABLE
  local verdict = check_job(id, raw, job, search.worker, search.queue)
  if verdict == "fits" then
    local fence = isolated(take, id, job, search.lock_ms, "c")
    if type(fence) == "number" then
      search.claims[#search.claims + 1] = {id, raw, fence}
      search.brought = search.brought + #raw
      return "taken"
    elseif fence == nil then
      again_at(search.cursor, math.max(call("PTTL", JOBS .. "lock:" .. id), 1))
      return "kept"
    end
    dead_letter(id, job, "it cannot be claimed: " .. fence, "InvalidJob", search.result_s)
    return "dropped"
  elseif verdict == BROKEN then
    local reason, name = dead_letter_reason(job)
    dead_letter(id, job, reason, name, search.result_s)
    return "dropped"
  elseif verdict == GONE then
    emit("missing", id, UNREADABLE, "")
    return "dropped"
  elseif verdict == "limited" then
    note_limited(search.cursor, job)
  end
  return "kept"
end

local function is_filled(search)
  return #search.claims >= search.want or search.brought >= MOST_BYTES
end

-- The JSON of the ids from `first` on, a few at once; one at a time where they are large, or not many are wanted.
local function fetch(search, ids, first, kept, looked, bytes)
  local count = kept > 0 and FETCHED or math.min(search.want - #search.claims, FETCHED)
  if looked == 0 or bytes / looked > LARGE then count = 1 end
  local names = {}
  for i = first, math.min(first + count - 1, #ids) do names[#names + 1] = JOBS .. "data:" .. ids[i] end
  return call("MGET", unpack(names))
end

-- Look at ids from `start` on until a window of them was kept; returns the kept ids, the indexes of the others,
-- how many were looked at, and whether that was the end.
local function look(search, start)
  local kept, gone, looked, bytes = {}, {}, 0, search.bytes
  local is_end = false
  while not is_end and #kept < search.window and not is_filled(search) and search.bytes - bytes < MOST_BYTES do
    -- usually the first ones fit: no more ids are read than wanted, until one does not fit
    local most = looked == 0 and math.min(search.want - #search.claims, search.window) or search.window
    local ids = call("LRANGE", WAITING, start + looked, start + looked + most - 1)
    is_end = #ids < most
    local raws, at = {}, 0
    for i, id in ipairs(ids) do
      if #kept >= search.window or is_filled(search) or search.bytes - bytes >= MOST_BYTES then
        is_end = false
        break
      end
      if at == #raws then
        raws, at = fetch(search, ids, i, #kept, looked, search.bytes - bytes), 0
      end
      at = at + 1
      if consider(search, id, raws[at]) == "kept" then
        kept[#kept + 1] = id
      else
        gone[#gone + 1] = start + looked
      end
      looked = looked + 1
    end
  end
  return kept, gone, looked, is_end
end

local function push_front(ids)
  local backwards = {}
  for i = #ids, 1, -1 do backwards[#backwards + 1] = ids[i] end
  in_chunks(backwards, 1000, function(from, to) call("LPUSH", WAITING, unpack(backwards, from, to)) end)
end

-- The head: kept ids are put back at once.
local function look_at_head(search)
  local cursor = search.cursor
  if cursor[3] > 0 then
    local digest = redis.sha1hex(table.concat(call("LRANGE", WAITING, 0, cursor[3] - 1), " "))
    if digest == cursor[4] then return cursor[3] == call("LLEN", WAITING) end
  end
  local kept, gone, looked, is_end = look(search, 0)
  if #gone > 0 then
    call("LTRIM", WAITING, looked, -1)
    push_front(kept)
    -- only what is behind all that was looked at has moved, by as many as were removed
    local marks = {}
    for _, mark in ipairs(cursor[2]) do
      if mark[2] >= looked then marks[#marks + 1] = {mark[1], mark[2] - #gone} end
    end
    cursor[1], cursor[2] = cursor[1] > looked and cursor[1] - #gone or 0, marks
  end
  cursor[3] = #kept
  cursor[4] = redis.sha1hex(table.concat(kept, " "))
  return is_end
end

-- Remove many from the middle of a long list in one pass.
local function cut_out(positions)
  for _, position in ipairs(positions) do call("LSET", WAITING, position, TOMBSTONE) end
  local is_far = positions[1] > call("LLEN", WAITING) / 2
  call("LREM", WAITING, is_far and -#positions or #positions, TOMBSTONE)
end

local function look_behind_cursor(search)
  local cursor = search.cursor
  local start = math.max(cursor[1], cursor[3])
  local kept, gone, looked, is_end = look(search, start)
  if #gone > 0 then cut_out(gone) end
  cursor[1] = start + looked - #gone
  if #kept > 0 then
    cursor[2] = {}
    for part = 0, 3 do
      local back = math.floor(part * #kept / 4)
      cursor[2][part + 1] = {kept[#kept - back], cursor[1] - 1 - back}
    end
  end
  return is_end
end

local function scan_list(search)
  local is_end = look_at_head(search)
  if not is_end and not is_filled(search) then is_end = look_behind_cursor(search) end
  return is_end
end

-- Fills search.claims with up to `want` of [id, JSON, fence]; returns whether every waiting job was looked at.
local function scan(search)
  call("SCARD", ACTIVE) -- where it is no set, that shows before anything is taken
  search.claims, search.brought, search.bytes, search.queues, search.unhandled = {}, 0, 0, {}, {}
  local cursor = search.cursor
  search.has_groups = call("EXISTS", ROOT .. "groups:" .. search.queue .. ":count") == 1
  local is_end
  if search.has_groups then
    -- use scan_groups
    is_end = scan_all(search)
  else
    is_end = scan_list(search)
  end
  cursor[7] = is_end and cursor[7] + 1 or 0
  write_taken()
  for queue in pairs(search.queues) do call("SADD", KNOWN, queue) end
  return is_end
end
