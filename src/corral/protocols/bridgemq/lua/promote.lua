-- promote: make jobs that are due claimable.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys
-- Returns  how many were moved, at most 500
-- use keys
-- use promote_due
return promote_due(500)
