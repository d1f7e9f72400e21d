-- cancel: delete jobs that wait; ask the workers of active ones to end them.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/names   ARGV[4] .. job ids
-- Returns  [id, …] of the jobs for which that was done
-- use names
-- use removal
local done = {}
for position = 4, #ARGV do
  local id = ARGV[position]
  local status = call("GET", JOBS .. "status:" .. id)
  if call("SISMEMBER", ACTIVE, id) == 1 then
    call("SADD", CANCELLING, id)
    done[#done + 1] = id
  elseif call("EXISTS", JOBS .. "data:" .. id) == 1 and status ~= "dead" and status ~= "completed" and status ~= "cron" then
    local job = description(id)
    local previous = leave_place(id, job.queue)
    delete_job(id)
    tell("cancelled", id, job, "", "prev", previous)
    done[#done + 1] = id
  end
end
return done
