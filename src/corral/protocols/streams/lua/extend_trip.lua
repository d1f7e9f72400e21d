-- extend_trip: renew all that one trip claimed, for a worker that has not read the answer yet.
-- KEYS     jobs:stream jobs:events jobs:trip:BROKER
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] number of the trip
-- Returns  how many were renewed
-- use renew
-- use trip
local renewed = 0
for _, entry in ipairs(entries_of(KEYS[3], ARGV[6]) or {}) do
  local field, deliveries = pending_body(entry)
  if field and isolated(renew, {entry, WORKER, deliveries, field.job_id}) == 0 then renewed = renewed + 1 end
end
return renewed
