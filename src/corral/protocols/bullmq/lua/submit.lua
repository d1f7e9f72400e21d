-- submit: store a batch of new jobs and enqueue each as its options say.
-- KEYS     keys.fixed, then the ledger where there is one
-- ARGV[1]  msgpack [envelope, …] (parts/add_job)   ARGV[2] msgpack [[data, …], [number of its envelope, …]]
-- ARGV[3]  1 where some job has relations (deduplication, a parent), else ""   ARGV[4] seconds the ledger is kept, or ""
-- ARGV[5]  in the last call of a flow: msgpack [now ms, id, …] of the parents whose children may have ended before
-- ARGV[5]  the last call of a flow: msgpack [now ms, [id, …] of its parents with children that may have existed], or none
-- Returns  [id, …], [number, …] of those that existed: by their id, by deduplication, or in the ledger; their jobs
--          are left as they are. In place of an id -5 where the parent does not exist, -7 where the job has another
--          parent: nothing was written for that job
-- use enqueue
local envelopes = cmsgpack.unpack(ARGV[1])
local data, numbers = unpack(cmsgpack.unpack(ARGV[2]))
local LEDGER = ARGV[4] ~= "" and KEYS[FIXED + 1]
local ids, existing = {}, {}

local function is_known(id) return LEDGER and call("SADD", LEDGER, id) == 0 end

local function answer()
  if LEDGER and #ids > 0 then call("EXPIRE", LEDGER, ARGV[4]) end
  return {ids, existing}
end

-- most jobs have no relations, and then the functions for these need not be made
if ARGV[3] == "" then
  local number = call("INCRBY", ID, #data) - #data
  local enqueue, _, close = enqueuing(queue_state())
  for i, text in ipairs(data) do
    local envelope = envelopes[numbers[i]]
    local id, name = envelope[1], envelope[2]
    local is_requested = id ~= ""
    if not is_requested then id = string.format("%d", number + i) end
    local job = PREFIX .. id
    if is_requested and is_known(id) then
      existing[#existing + 1] = i
    elseif is_requested and call("EXISTS", job) == 1 then
      existing[#existing + 1] = i
      call("XADD", EVENTS, "*", "event", "duplicated", "jobId", id)
    else
      call("HSET", job, "name", name, "data", text, "opts", envelope[3], "timestamp", envelope[4],
           "delay", envelope[5], "priority", envelope[6])
      call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", name)
      enqueue(id, envelope)
    end
    ids[i] = id
  end
  close()
  return answer()
end

-- use add_job
local state = queue_state()
local add, close = adding(state)
for i, text in ipairs(data) do
  local envelope = envelopes[numbers[i]]
  local id, existed = envelope[1], true
  if not is_known(id) then
    id, existed = add(envelope, text)
    if LEDGER and type(id) == "number" then call("SREM", LEDGER, envelope[1]) end
  end
  ids[i] = id
  if existed then existing[#existing + 1] = i end
end
close()
if ARGV[5] and is_six(state) then
  local parents = cmsgpack.unpack(ARGV[5])
  for i = 2, #parents do parents_of(state).close_flow(parents[i], parents[1]) end
end
return answer()
