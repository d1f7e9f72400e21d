-- job_states: the state of each job, "unknown" where it has none.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [state, …]
-- use job_state
local states = {}
for i, id in ipairs(ARGV) do states[i] = state_of(id) end
return states
