-- remove: delete jobs that are not active, schedules too.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/names   ARGV[4] .. job ids
-- Returns  [id, …] of the jobs that were deleted
-- use names
-- use removal
local removed = {}
for position = 4, #ARGV do
  local id = ARGV[position]
  local job = description(id)
  local previous = leave_place(id, job.queue)
  if previous ~= "active" then
    call("HDEL", ROOT .. "scheduler:leases", id)
    if delete_job(id) > 0 then
      tell("removed", id, job, "", "prev", previous)
      removed[#removed + 1] = id
    end
  end
end
return removed
