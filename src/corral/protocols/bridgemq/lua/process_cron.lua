-- process_cron: the document's own firing of schedules that are due. Each fires as a job of its own with the id
-- "{jobId}@{fire time ms}", so that a second try adds nothing; the schedule is not due until its client sets
-- when it is due again (ZADD cron), or until the lease of a client that did not do so expires.
-- KEYS[1]  cron   KEYS[2] waiting   KEYS[3] "…:jobs:data:"
-- ARGV[1]  now ms   ARGV[2] most jobs (100)
-- Returns  JSON array of {jobId, cronExpression, timezone}
-- use document_keys
-- use fire_job
-- use leases
-- use rename_job
local LEASE_MS = 60000
local refused = name_from(KEYS[3], "data:")
if refused then return refused end
CRON, WAITING, LEASES, NOW = KEYS[1], KEYS[2], ROOT .. "scheduler:leases", integer(tonumber(ARGV[1]) or 0)

local results = {}
for _, taken in ipairs(lease_due(tonumber(ARGV[2] or 100) or 100, LEASE_MS)) do
  local raw, job = load_job(taken.id)
  if raw and not job.is_broken then
    local id = taken.id .. "@" .. integer(taken.due)
    fire(id, renamed(raw, id), job, 0)
    results[#results + 1] = cjson.encode({
      jobId = taken.id,
      cronExpression = text_of(job.schedule.cron) or "",
      timezone = text_of(job.schedule.timezone) or "UTC",
    })
  else
    call("ZREM", CRON, taken.id)
    call("HDEL", LEASES, taken.id)
    if raw then dead_letter(taken.id, job, "its job data is no JSON object", "InvalidJob", 86400) end
  end
end
return "[" .. table.concat(results, ",") .. "]"
