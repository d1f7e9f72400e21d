-- submit: store a batch of new jobs and queue each where its options say.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [envelope, …] (parts/adding)   ARGV[2] msgpack [[data, …], [which envelope it has, …]]
-- ARGV[3]  1 where some job is bound to others, else ""
-- Returns  [id, …]; an id that exists already, or that stands for this job, is returned and its job left as it
--          is; -5 where the parent is missing, -7 where the job has another parent: that job wrote nothing
-- use placing
local envelopes = cmsgpack.unpack(ARGV[1])
local data, which = unpack(cmsgpack.unpack(ARGV[2]))
local ids = {}

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
    if given and call("EXISTS", job) == 1 then
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
  return ids
end

-- use adding
local add, close = adding(queue_state())
for i, text in ipairs(data) do ids[i] = add(envelopes[which[i]], text) end
close()
return ids
