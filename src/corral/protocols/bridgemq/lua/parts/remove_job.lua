-- Remove a job from the lists, and delete its keys.
-- use delete_job
-- use groups

-- Returns the state it was in: "active" is left alone, "unknown" where there is none.
local function remove_from_lists(id, queue)
  if call("SISMEMBER", ACTIVE, id) == 1 then return "active" end
  if call("ZREM", DELAYED, id) == 1 then return "delayed" end
  if call("ZREM", CRON, id) == 1 then return "cron" end
  if call("ZREM", ROOT .. "jobs:completed:" .. queue, id) == 1 then return "completed" end
  local status = call("GET", JOBS .. "status:" .. id)
  if status == "waiting" and groups_of(queue).remove(id) then return "waiting" end
  if status ~= "dead" and call("LREM", WAITING, 1, id) > 0 then return "waiting" end
  if call("LREM", DEAD, 1, id) > 0 then return "dead" end
  return status or "unknown"
end

-- Its type and queue, as far as they are still known.
local function description(id)
  local raw, job = load_job(id)
  if raw then return job end
  local summary = try("GET", JOBS .. "summary:" .. id)
  return type(summary) == "string" and read_job(summary) or UNREADABLE
end
