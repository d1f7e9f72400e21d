-- drain: delete jobs that nobody was given yet, and their queue entries.
-- KEYS     jobs:stream jobs:events
-- ARGV[1]  .. [5] as in parts/story   ARGV[6] most entries a call
-- Returns  how many entries were deleted
-- use story
-- use backlog
local _, _, last = group_state(STREAM)
local entries = call("XRANGE", STREAM, "(" .. last, "+", "COUNT", ARGV[6])
for _, entry in ipairs(entries) do
  local field = fields_of(entry[2])
  local id = field.job_id
  local known = is_id(id) and try("HMGET", JOB .. id, "status", "task") or {}
  -- what is over or expired leaves its entry only; a job of a stranger that runs unasked is left alone
  if not known.err and known[1] == "queued" then
    call("DEL", JOB .. id, JOB .. id .. ":events", JOB .. id .. ":deliveries")
    share(id, known[2] or "", "removed", NOW, "operator.drain", "{}")
  end
  drop(entry[1])
end
clear_dropped()
return #entries
