-- drain: delete undelivered jobs and their queue entries.
-- KEYS     jobs:stream jobs:events
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] most entries a call
-- Returns  how many entries were deleted
-- use job_events
-- use backlog
local _, _, last = group_state(STREAM)
local entries = call("XRANGE", STREAM, "(" .. last, "+", "COUNT", ARGV[6])
for _, entry in ipairs(entries) do
  local field = fields_of(entry[2])
  local id = field.job_id
  local known = is_id(id) and try("HMGET", JOB .. id, "status", "task") or {}
  -- of a job that is over or expired only the entry is left; one that runs by other means is left alone
  if not known.err and known[1] == "queued" then
    call("DEL", JOB .. id, JOB .. id .. ":events", JOB .. id .. ":deliveries")
    emit_shared(id, known[2] or "", "removed", NOW, "operator.drain", "{}")
  end
  delete_entry(entry[1])
end
delete_entries()
return #entries
