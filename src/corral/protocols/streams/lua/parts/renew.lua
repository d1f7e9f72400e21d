-- Renew a claim [entry, owner, deliveries, id] and the lifetime of its job; returns 0 or a code.
-- use ownership
local function renew(row)
  local entry, job = row[1], JOB .. row[4]
  local code = held(entry, row[2], row[3])
  if code ~= 0 then return code end
  local known = read_job(row[4], "status", "ttl_s")
  if not known[1] then return GONE end
  -- XCLAIM drops an entry whose body was trimmed away; left alone it can still be settled
  if #call("XRANGE", STREAM, entry, entry) > 0 then
    -- JUSTID: the idle time starts anew, the delivery count stays
    call("XCLAIM", STREAM, GROUP, row[2], 0, entry, "JUSTID")
  end
  if known[1] == "canceled" then return CANCELED end
  if OVER[known[1]] then return ENDED end
  local ttl = held_lifetime(known[2])
  keep(row[4], ttl)
  call("EXPIRE", job .. ":deliveries", ttl)
  return 0
end
