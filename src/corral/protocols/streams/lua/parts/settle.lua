-- Settle claimed jobs. A row is
-- [entry, owner, deliveries, id, task, status, value, event data, at ms, was it requeued before,
--  records of the attempts made in vain or ""];
-- status "queued" gives the job back, "parked" leaves it to workers that have a handler for it.
-- use parked
local function settle(row)
  local entry, id, task, status, at = row[1], row[4], row[5], row[6], row[9]
  local code = held(entry, row[2], row[3])
  if code ~= 0 then return code end
  local known = read_job(id, "status", "ttl_s")
  if not known[1] then
    -- it expired while it ran: a hash written now would be incomplete
    delete_entry(entry)
    emit_shared(id, task, "expired", at, "worker.finish", "{}")
    return GONE
  end
  if OVER[known[1]] then
    delete_entry(entry)
    return known[1] == "canceled" and status == "canceled" and 0 or ENDED
  end
  local ttl = lifetime(known[2])
  local found = (status == "queued" or status == "parked") and call("XRANGE", STREAM, entry, entry)
  if status == "parked" and found[1] then
    park(entry, id, task, ttl, at)
  elseif found then
    -- where the entry was trimmed away, the hash still has its fields
    local body = found[1] and found[1][2]
                 or {"job_id", id, "task", task, "payload", call("HGET", JOB .. id, "payload") or "{}"}
    requeue(entry, body, id, task, ttl, spent_before(id) + row[3] - 1, at, "worker.release")
  else
    finish(entry, id, task, ttl, status, row[7], row[8], at, "worker.finish", row[10])
    if row[11] ~= "" then call("HSET", JOB .. id, "failed_attempts", row[11]) end
  end
  return 0
end
