-- remove_children: delete the children of a job that have not started.
-- KEYS     keys.fixed
-- ARGV[1]  id
-- Returns  1
-- use remove_job
remove_children(PREFIX .. ARGV[1], queue_state(), {children = true, is_sparing = true})
return 1
