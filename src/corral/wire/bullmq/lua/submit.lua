-- submit: store a batch of new jobs and queue each where its options say.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [envelope, …] (parts/adding)   ARGV[2] msgpack [[data, …], [which envelope it has, …]]
-- ARGV[3]  1 where some job has a parent, else ""
-- Returns  [id, …]; an id that exists already, or that stands for this job, is returned and its job left as it
--          is; -5 where the parent is missing, -7 where the job has another parent: that job wrote nothing
-- use adding
local envelopes = cmsgpack.unpack(ARGV[1])
local data, which = unpack(cmsgpack.unpack(ARGV[2]))
-- a job that is refused for its parent takes no number, so such batches take theirs one by one
local number = ARGV[3] == "" and call("INCRBY", ID, #data) - #data
local add, close = adding(queue_state(), number)
local ids = {}
for i, text in ipairs(data) do ids[i] = add(i, envelopes[which[i]], text) end
close()
return ids
