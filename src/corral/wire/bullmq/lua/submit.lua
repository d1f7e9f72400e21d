-- submit: store a batch of new jobs and queue each where its options say.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [row, …] (parts/adding)   ARGV[2] 1 where some row has a parent, else ""
-- Returns  [id, …]; an id that exists already, or that stands for this job, is returned and its job left as it
--          is; -5 where the parent is missing, -7 where the job has another parent: that row wrote nothing
-- use adding
local rows = cmsgpack.unpack(ARGV[1])
-- a row that is refused for its parent takes no number, so such batches take theirs one by one
local number = ARGV[2] == "" and call("INCRBY", ID, #rows) - #rows
local add, close = adding(queue_state(), number)
local ids = {}
for i, row in ipairs(rows) do ids[i] = add(i, row) end
close()
return ids
