-- end_hold: delete held jobs that have arrived elsewhere, or put them back in the queue.
-- KEYS     jobs:stream jobs:events, then the run, the held jobs
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] drop or restore   ARGV[7…] receipts, in the order they were held
-- Returns  how many of them were held
-- use job_events
local RUN, HELD = KEYS[3], KEYS[4]
local ended = 0
for position = 7, #ARGV do
  if call("ZREM", HELD, ARGV[position]) == 1 then
    local _, _, _, id = unpack(cmsgpack.unpack(ARGV[position]))
    local known = call("HMGET", JOB .. id, "status", "task", "payload")
    if ARGV[6] == "drop" then
      call("DEL", JOB .. id, JOB .. id .. ":events", JOB .. id .. ":deliveries")
      emit_shared(id, known[2] or "", "removed", NOW, "operator.move", "{}")
      if call("EXISTS", RUN) == 1 then call("HINCRBY", RUN, "moved", 1) end
    elseif known[1] == "queued" then
      call("XADD", STREAM, "*", "job_id", id, "task", known[2] or "", "payload", known[3] or "{}")
    end
    ended = ended + 1
  end
end
return ended
