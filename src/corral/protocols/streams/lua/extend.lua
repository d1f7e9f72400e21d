-- extend: renew claims that are still held, and the lifetimes of their jobs.
-- KEYS     jobs:stream jobs:events, then hash and events of each job
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] msgpack [[entry, owner, deliveries, id], …]
-- Returns  [0 | code, …]
-- use ownership
local function renew(row)
  local entry, job = row[1], JOB .. row[4]
  local code = held(entry, row[2], row[3])
  if code ~= 0 then return code end
  local known = call("HMGET", job, "status", "ttl_s")
  if not known[1] then return GONE end
  -- XCLAIM drops an entry whose body was trimmed away; left alone it can still be settled
  if #call("XRANGE", STREAM, entry, entry) > 0 then
    -- JUSTID: the idle time starts anew, the delivery count stays
    call("XCLAIM", STREAM, GROUP, row[2], 0, entry, "JUSTID")
  end
  if known[1] == "canceled" then return CANCELED end
  if OVER[known[1]] then return ENDED end
  local ttl = lifetime(known[2])
  call("EXPIRE", job, ttl)
  call("EXPIRE", job .. ":events", ttl)
  call("EXPIRE", job .. ":deliveries", ttl)
  return 0
end

local codes = {}
for position, row in ipairs(cmsgpack.unpack(ARGV[6])) do codes[position] = isolated(renew, row) end
return codes
