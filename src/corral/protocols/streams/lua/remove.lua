-- remove: delete jobs that are not running.
-- KEYS     jobs:stream jobs:events, then hash and events of each job
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] .. job ids
-- Returns  [id, …] of the jobs that were deleted
-- use job_events
local removed = {}
for position = 6, #ARGV do
  local id = ARGV[position]
  local known = call("HMGET", JOB .. id, "status", "task")
  if known[1] and known[1] ~= "running" then
    call("DEL", JOB .. id, JOB .. id .. ":events", JOB .. id .. ":deliveries")
    emit_shared(id, known[2] or "", "removed", NOW, "operator.remove", "{}")
    removed[#removed + 1] = id
  end
end
return removed
