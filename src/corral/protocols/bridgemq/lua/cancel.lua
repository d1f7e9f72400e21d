-- cancel: delete waiting jobs, and mark active ones, whose workers end them when they renew.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue   ARGV[5] .. job ids of that queue
-- Returns  [id, …] of the jobs for which that was done
-- use keys
-- use remove_job
local done = {}
for position = 5, #ARGV do
  local id = ARGV[position]
  local status, job = call("GET", JOBS .. "status:" .. id), description(id)
  if job.queue ~= ARGV[4] then
    status = "another queue's"
  elseif call("SISMEMBER", ACTIVE, id) == 1 then
    call("SADD", CANCELLING, id)
    done[#done + 1] = id
  elseif call("EXISTS", JOBS .. "data:" .. id) == 1 and status ~= "dead" and status ~= "completed" and status ~= "cron" then
    local previous = remove_from_lists(id, job.queue)
    delete_job(id)
    emit("cancelled", id, job, "", "prev", previous)
    done[#done + 1] = id
  end
end
return done
