-- promote: make delayed jobs that are due claimable, at most 500.
-- KEYS     keys.fixed
-- ARGV[1]  now ms
-- Returns  how many were moved
-- use queue
-- use promote_due
return promote_due(tonumber(ARGV[1]), queue_state())
