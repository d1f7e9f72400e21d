-- cancel: end queued and running jobs; the worker of a running one learns of it when it next renews.
-- KEYS     jobs:stream jobs:events, then hash and events of each job
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] .. job ids
-- Returns  [id, …] of the jobs that were canceled
-- use job_events
local canceled = {}
for position = 6, #ARGV do
  local id = ARGV[position]
  local known = read_job(id, "status", "ttl_s", "task")
  -- the queue entry stays: the worker that reads it finds the job over and acknowledges it
  if known[1] and not OVER[known[1]] then
    emit(id, known[3] or "", lifetime(known[2]), "canceled", NOW, "operator.cancel", '{"reason":"cancelled"}')
    call("HSET", JOB .. id, "status", "canceled", "updated_ts", NOW)
    call("DEL", JOB .. id .. ":deliveries")
    canceled[#canceled + 1] = id
  end
end
return canceled
