-- adopt: return what one trip claimed, to the worker that lost the answer.
-- KEYS     jobs:stream jobs:events jobs:trip:BROKER
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] number of the trip, or "" with the entry in ARGV[7]
-- Returns  [claimed row, …] (parts/claim)
-- use claim
-- use trip
local entries = {ARGV[7]}
if ARGV[6] ~= "" then
  entries = entries_of(KEYS[3], ARGV[6])
  if not entries then
    -- the trip has not arrived; if it still does, it finds itself given up and claims nothing
    entries = {}
    call("HSET", KEYS[3], "given_up", ARGV[6])
    call("EXPIRE", KEYS[3], 3600)
  end
end

local rows = {}
for _, entry in ipairs(entries) do
  local field, deliveries = pending_body(entry)
  if field then
    local known = call("HMGET", JOB .. field.job_id, "status", "ttl_s", "created_ts")
    rows[#rows + 1] = claim_row(entry, field, known, deliveries)
  end
end
return rows
