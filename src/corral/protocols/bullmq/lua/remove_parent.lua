-- remove_parent: detach a job from its parent; a parent that waited for it alone is enqueued.
-- KEYS     keys.fixed
-- ARGV[1]  id   ARGV[2] key of the parent
-- Returns  0, or 1 the parent does not wait for it, -1 the job does not exist, -5 the parent does not
-- use queue
-- use parents
local job = PREFIX .. ARGV[1]
if call("EXISTS", job) == 0 then return -1 end
if call("EXISTS", ARGV[2]) == 0 then return -5 end
if not parents_of(queue_state()).detach_child(job, ARGV[2]) then return 1 end
call("HDEL", job, "parentKey", "parent")
return 0
