-- cancel: end queued jobs, and running ones for everyone but their worker, who is told when it next renews.
-- KEYS     jobs:stream jobs:events, then hash and events of each job
-- ARGV[1]  .. [5] as in parts/story   ARGV[6] .. job ids
-- Returns  [id, …] of the jobs that were canceled
-- use story
local canceled = {}
for position = 6, #ARGV do
  local id = ARGV[position]
  local known = call("HMGET", JOB .. id, "status", "ttl_s", "task")
  -- the queue entry stays: whoever reads it finds the job over and acknowledges it
  if known[1] and not OVER[known[1]] then
    tell(id, known[3] or "", lifetime(known[2]), "canceled", NOW, "operator.cancel", '{"reason":"cancelled"}')
    call("HSET", JOB .. id, "status", "canceled", "updated_ts", NOW)
    call("DEL", JOB .. id .. ":deliveries")
    canceled[#canceled + 1] = id
  end
end
return canceled
