-- adopt: return what one trip claimed, to the worker that lost the answer.
-- KEYS     jobs:stream jobs:events jobs:trip:BROKER
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] number of the trip, or "" with the entry in ARGV[7]
-- Returns  [claimed row, …] (parts/claim)
-- use claim
local entries = {ARGV[7]}
if ARGV[6] ~= "" then
  entries = {}
  local record = call("HMGET", KEYS[3], "number", "entries")
  if record[1] == ARGV[6] then
    for entry in string.gmatch(record[2], "%S+") do entries[#entries + 1] = entry end
  else
    -- the trip has not arrived; if it still does, it finds itself given up and claims nothing
    call("HSET", KEYS[3], "given_up", ARGV[6])
    call("EXPIRE", KEYS[3], 3600)
  end
end

local rows = {}
for _, entry in ipairs(entries) do
  local pending = try("XPENDING", STREAM, GROUP, entry, entry, 1)
  local found = call("XRANGE", STREAM, entry, entry)
  if not pending.err and pending[1] and pending[1][2] == WORKER and found[1] then
    local field = fields_of(found[1][2])
    local known = call("HMGET", JOB .. field.job_id, "status", "ttl_s", "created_ts")
    rows[#rows + 1] = claim_row(entry, field, known, pending[1][4])
  end
end
return rows
