-- drain: delete undelivered and parked jobs, and their queue entries.
-- KEYS     jobs:stream jobs:events
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] most entries a call
-- Returns  how many entries were deleted
-- use parked
-- use backlog
local _, _, last = group_state(STREAM)
local entries = call("XRANGE", STREAM, "(" .. last, "+", "COUNT", ARGV[6])
for _, parking in ipairs(parkings()) do
  local missing = tonumber(ARGV[6]) - #entries
  local rows = missing > 0 and call("XPENDING", STREAM, GROUP, "-", "+", missing, parking[1]) or {}
  for _, row in ipairs(rows) do entries[#entries + 1] = call("XRANGE", STREAM, row[1], row[1])[1] or {row[1], {}} end
end
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
clean_parkings()
return #entries
