-- receive: add jobs that come from another queue, with all they have.
-- KEYS     keys.fixed, then the ledger, the run's count
-- ARGV[1]  seconds both are kept
-- ARGV[2]  msgpack [[id at the source, id or "", 1 to give it another where that is taken, group or "", [field, value, …],
--          place, due ms or time of its end or 0, priority, [log line, …], deduplication id or "",
--          {name of a relation = [member or field, value, …]}], …]
-- Returns  for each [id, whether the ledger knew it], or [false, why not: taken, closed]
-- use enqueue
local LEDGER, COUNT = KEYS[FIXED + 1], KEYS[FIXED + 2]
local rows = cmsgpack.unpack(ARGV[2])
local state = queue_state()
local enqueue, push, close = enqueuing(state)
local answers, taken, received = {}, {}, 0

-- A job of a flow that cannot be added leaves out the whole flow.
for _, row in ipairs(rows) do
  if row[2] ~= "" and row[3] ~= 1 and not call("HGET", LEDGER, row[1]) and call("EXISTS", PREFIX .. row[2]) == 1 then
    taken[row[4] ~= "" and row[4] or row] = true
  end
end

local function new_id(row)
  local id = row[2]
  if id == "" or call("EXISTS", PREFIX .. id) == 1 then
    repeat id = string.format("%d", call("INCR", ID)) until call("EXISTS", PREFIX .. id) == 0
  elseif string.match(id, "^%d+$") and #id < 16 and tonumber(id) > (tonumber(call("GET", ID) or 0) or 0) then
    call("SET", ID, id) -- the next number is behind it
  end
  return id
end

local WRITE = {["hash"] = "HSET", ["set"] = "SADD"}

local function relate(job, relations)
  for name, flat in pairs(relations) do
    local kind, suffix = string.match(name, "^(%a+):(.*)$")
    if kind == "zset" then
      for i = 1, #flat, 2 do call("ZADD", job .. suffix, flat[i + 1], flat[i]) end
    else
      call(WRITE[kind], job .. suffix, unpack(flat))
    end
  end
end

local function add(row)
  local id = new_id(row)
  local job, place = PREFIX .. id, row[6]
  call("HSET", job, unpack(row[5]))
  in_chunks(row[9], 1000, function(from, to) call("RPUSH", job .. ":logs", unpack(row[9], from, to)) end)
  relate(job, row[11])
  if row[10] ~= "" and call("EXISTS", PREFIX .. "de:" .. row[10]) == 0 then
    call("SET", PREFIX .. "de:" .. row[10], id)
  end
  call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", row[5][2])
  if place == "waiting" then
    enqueue(id, {nil, nil, nil, 0, 0, row[8], false})
  elseif place == "delayed" then
    delay_job(id, row[7])
  elseif place == "waiting-children" then
    call("ZADD", WAITING_CHILDREN, row[7], id)
  else
    call("ZADD", PREFIX .. place, row[7], id)
  end
  return id
end

local is_closed = call("HGET", LEDGER, "") ~= false
for number, row in ipairs(rows) do
  local known = call("HGET", LEDGER, row[1])
  if known then
    answers[number] = known ~= "" and {known, 1} or {false, "taken"}
  elseif is_closed then
    answers[number] = {false, "closed"}
  elseif taken[row[4] ~= "" and row[4] or row] then
    call("HSET", LEDGER, row[1], "") -- the same answer to whoever repeats this
    answers[number] = {false, "taken"}
  else
    local id = add(row)
    call("HSET", LEDGER, row[1], id)
    received = received + 1
    answers[number] = {id, 0}
  end
end
if received > 0 then
  close()
  call("INCRBY", COUNT, received)
end
call("EXPIRE", LEDGER, ARGV[1])
call("EXPIRE", COUNT, ARGV[1])
return answers
