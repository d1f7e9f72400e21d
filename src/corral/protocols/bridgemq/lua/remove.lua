-- remove: delete jobs that are not active, schedules too.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue   ARGV[5] .. job ids of that queue
-- Returns  [id, …] of the jobs that were deleted
-- use keys
-- use remove_job
local removed = {}
for position = 5, #ARGV do
  local id = ARGV[position]
  local job = description(id)
  local previous = job.queue == ARGV[4] and remove_from_lists(id, job.queue) or "active"
  if previous ~= "active" then
    call("HDEL", ROOT .. "scheduler:leases", id)
    if delete_job(id) > 0 then
      emit("removed", id, job, "", "prev", previous)
      removed[#removed + 1] = id
    end
  end
end
return removed
