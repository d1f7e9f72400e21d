-- receive: add jobs that come from another queue, with all they have.
-- KEYS     .. [11] keys.fixed, then the ledger, the run's count
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue   ARGV[5] seconds both are kept   ARGV[6] seconds results are kept
-- ARGV[7]  msgpack [[id at the source, id, another id where that is taken or "", type, {id = JSON}, place, score, is front,
--          status, result or "", summary or "", attempts, [field, value, …] of its failure, [log line, …]], …]
-- Returns  for each [id, whether the ledger knew it], or [false, why not: taken, closed]
-- use keys
-- use remove_job
local LEDGER, COUNT = KEYS[FIXED + 1], KEYS[FIXED + 2]
local answers, received = {}, 0
local is_closed = call("HGET", LEDGER, "") ~= false
call("SADD", KNOWN, ARGV[4])

local front = {}
local PLACES = {
  waiting = function(row, id)
    if row[8] then front[#front + 1] = id else call("RPUSH", WAITING, id) end
  end,
  delayed = function(row, id) call("ZADD", DELAYED, row[7], id) end,
  completed = function(row, id) call("ZADD", COMPLETED, row[7], id) end,
  dead = function(_, id) call("RPUSH", DEAD, id) end, -- the newest, which come first, stand at the left end
}

local function add(row, id)
  local is_completed = row[6] == "completed"
  delete_job(id)
  call("PERSIST", JOBS .. "fence:" .. id)
  local raw = row[5][id] or row[5][row[2]]
  if is_completed then
    if raw ~= "" then call("SET", JOBS .. "data:" .. id, raw, "EX", ARGV[6]) end
    call("SET", JOBS .. "status:" .. id, row[9], "EX", ARGV[6])
    call("SET", JOBS .. "summary:" .. id, row[11], "EX", ARGV[6])
  else
    call("SET", JOBS .. "data:" .. id, raw)
    call("SET", JOBS .. "status:" .. id, row[9])
    if row[12] > 0 then call("SET", JOBS .. "attempts:" .. id, row[12]) end
    if #row[13] > 0 then call("HSET", JOBS .. "failure:" .. id, unpack(row[13])) end
  end
  if row[10] ~= "" then call("SET", JOBS .. "result:" .. id, row[10], "EX", ARGV[6]) end
  in_chunks(row[14], 1000, function(from, to) call("RPUSH", JOBS .. "log:" .. id, unpack(row[14], from, to)) end)
  PLACES[row[6]](row, id)
  emit("added", id, {type = row[4], queue = ARGV[4]}, "", "to", row[9])
end

for number, row in ipairs(cmsgpack.unpack(ARGV[7])) do
  local known, id = call("HGET", LEDGER, row[1]), row[2]
  if not known and call("EXISTS", JOBS .. "data:" .. id, JOBS .. "status:" .. id) > 0 then id = row[3] end
  if known then
    answers[number] = known ~= "" and {known, 1} or {false, "taken"}
  elseif is_closed then
    answers[number] = {false, "closed"}
  elseif id == "" then
    call("HSET", LEDGER, row[1], "") -- the same answer to whoever repeats this
    answers[number] = {false, "taken"}
  else
    add(row, id)
    call("HSET", LEDGER, row[1], id)
    received = received + 1
    answers[number] = {id, 0}
  end
end
-- the last first, so that they keep their order
for position = #front, 1, -1 do call("LPUSH", WAITING, front[position]) end
if received > 0 then call("INCRBY", COUNT, received) end
call("EXPIRE", LEDGER, ARGV[5])
call("EXPIRE", COUNT, ARGV[5])
return answers
