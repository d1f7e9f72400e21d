-- wire_state: the state each job is in, whether there is such a job or not.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [state, …]
-- use states
local found = {}
for i, id in ipairs(ARGV) do found[i] = state_of(id) end
return found
