-- unbind: a job is its parent's child no more; a parent that waited for it alone goes on.
-- KEYS     keys.fixed
-- ARGV[1]  id   ARGV[2] key of the parent
-- Returns  0, or 1 the parent does not wait for it, -1 the job is gone, -5 the parent is
-- use queue
-- use family
local job = PREFIX .. ARGV[1]
if call("EXISTS", job) == 0 then return -1 end
if call("EXISTS", ARGV[2]) == 0 then return -5 end
if not family_of(queue_state()).forget_child(job, ARGV[2]) then return 1 end
call("HDEL", job, "parentKey", "parent")
return 0
