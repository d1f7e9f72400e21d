-- receive: add jobs that come from another queue, with all they have.
-- KEYS     jobs:stream jobs:events, then the ledger, the run's count
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] seconds both are kept
-- ARGV[7]  msgpack [[id at the source, id, another id where that is taken or "", [field, value, …], status, event data], …]
-- Returns  for each [id, whether the ledger knew it], or [false, why not: taken, closed]
-- use job_events
local LEDGER, COUNT = KEYS[3], KEYS[4]
local answers, received = {}, 0
local is_closed = call("HGET", LEDGER, "") ~= false

local function add(row, id)
  local job, field = JOB .. id, fields_of(row[4])
  local ttl = lifetime(field.ttl_s)
  call("HSET", job, "job_id", id, unpack(row[4]))
  emit(id, field.task, ttl, "queued", NOW, "operator.move", "{}")
  if row[5] == "queued" then
    call("XADD", STREAM, "*", "job_id", id, "task", field.task, "payload", field.payload)
  else
    emit(id, field.task, ttl, row[5], field.updated_ts, "operator.move", row[6])
  end
end

for number, row in ipairs(cmsgpack.unpack(ARGV[7])) do
  local known, id = call("HGET", LEDGER, row[1]), row[2]
  if not known and call("EXISTS", JOB .. id) == 1 then id = row[3] end
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
if received > 0 then call("INCRBY", COUNT, received) end
call("EXPIRE", LEDGER, ARGV[6])
call("EXPIRE", COUNT, ARGV[6])
return answers
