-- Add one firing of a schedule as a job of its own; false where it was added before.
-- use groups
local function fire(id, raw, job, priority)
  if call("EXISTS", JOBS .. "data:" .. id, JOBS .. "status:" .. id) > 0 then return false end
  call("SET", JOBS .. "data:" .. id, raw)
  wait_in_place(id, {priority = priority})
  emit("added", id, job, "", "to", "waiting")
  return true
end
