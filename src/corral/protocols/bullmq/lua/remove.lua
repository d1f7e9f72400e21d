-- remove: delete jobs that are not locked.
-- KEYS     keys.fixed
-- ARGV[1]  1 with their children, else 0   ARGV[2…] id, …
-- Returns  [code, …]: 1 removed, 0 it or a child of it is locked, -1 it does not exist, -8 its scheduler's next
-- use remove_job
local state = queue_state()
local codes = {}
for i = 2, #ARGV do codes[i - 1] = remove_unlocked(ARGV[i], state, ARGV[1] == "1") end
return codes
