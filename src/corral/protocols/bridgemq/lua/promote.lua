-- promote: jobs that are due become claimable.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/names
-- Returns  how many were moved, at most 500
-- use names
-- use promotion
return promote_due(500)
