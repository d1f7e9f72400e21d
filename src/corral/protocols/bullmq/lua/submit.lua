-- submit: store a batch of new jobs and queue each where its options say.
-- KEYS     keys.fixed, then the ledger where there is one
-- ARGV[1]  msgpack [envelope, …] (parts/adding)   ARGV[2] msgpack [[data, …], [which envelope it has, …]]
-- ARGV[3]  1 where some job is bound to others, else ""   ARGV[4] seconds the ledger is kept, or ""
-- Returns  [id, …], [position, …] of those that were there already: whose id exists, that another job stands for,
--          or that the ledger knows; their jobs are left as they are. In place of an id -5 where the parent is
--          missing, -7 where the job has another parent: that job wrote nothing
-- use placing
local envelopes = cmsgpack.unpack(ARGV[1])
local data, which = unpack(cmsgpack.unpack(ARGV[2]))
local LEDGER = ARGV[4] ~= "" and KEYS[FIXED + 1]
local ids, existing = {}, {}

local function is_known(id) return LEDGER and call("SADD", LEDGER, id) == 0 end

local function answer()
  if LEDGER and #ids > 0 then call("EXPIRE", LEDGER, ARGV[4]) end
  return {ids, existing}
end

-- most jobs are bound to none, and then the words for bonds need not be made
if ARGV[3] == "" then
  local number = call("INCRBY", ID, #data) - #data
  local place, _, close = placing(queue_state())
  for i, text in ipairs(data) do
    local envelope = envelopes[which[i]]
    local id, name = envelope[1], envelope[2]
    local given = id ~= ""
    if not given then id = string.format("%d", number + i) end
    local job = PREFIX .. id
    if given and is_known(id) then
      existing[#existing + 1] = i
    elseif given and call("EXISTS", job) == 1 then
      existing[#existing + 1] = i
      call("XADD", EVENTS, "*", "event", "duplicated", "jobId", id)
    else
      call("HSET", job, "name", name, "data", text, "opts", envelope[3], "timestamp", envelope[4],
           "delay", envelope[5], "priority", envelope[6])
      call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", name)
      place(id, envelope)
    end
    ids[i] = id
  end
  close()
  return answer()
end

-- use adding
local add, close = adding(queue_state())
for i, text in ipairs(data) do
  local envelope = envelopes[which[i]]
  local id, existed = envelope[1], true
  if not is_known(id) then
    id, existed = add(envelope, text)
    if LEDGER and type(id) == "number" then call("SREM", LEDGER, envelope[1]) end
  end
  ids[i] = id
  if existed then existing[#existing + 1] = i end
end
close()
return answer()
