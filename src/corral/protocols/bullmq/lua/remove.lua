-- remove: delete jobs that nobody holds.
-- KEYS     keys.fixed
-- ARGV[1]  1 with their children, else 0   ARGV[2…] id, …
-- Returns  [code, …]: 1 removed, 0 somebody holds it (or a child of it), -1 not there, -8 its scheduler's next
-- use removal
local state = queue_state()
local codes = {}
for i = 2, #ARGV do codes[i - 1] = remove_free(ARGV[i], state, ARGV[1] == "1") end
return codes
