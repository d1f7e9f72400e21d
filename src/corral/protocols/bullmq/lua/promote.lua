-- promote: move delayed jobs that are due to where they can be claimed, at most 500.
-- KEYS     keys.fixed
-- ARGV[1]  now ms
-- Returns  how many were moved
-- use queue
-- use promotion
return promote_due(tonumber(ARGV[1]), queue_state())
