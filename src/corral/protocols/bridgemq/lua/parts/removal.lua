-- Take a job out of wherever it waits, and delete what is kept of it.
-- use jobs
local KEPT = {"data:", "status:", "result:", "progress:", "attempts:", "failure:", "summary:", "log:"}

-- The state it was in: "active" is left alone, "unknown" where there is none.
local function leave_place(id, queue)
  if call("SISMEMBER", ACTIVE, id) == 1 then return "active" end
  if call("ZREM", DELAYED, id) == 1 then return "delayed" end
  if call("ZREM", CRON, id) == 1 then return "cron" end
  if call("ZREM", ROOT .. "jobs:completed:" .. queue, id) == 1 then return "completed" end
  local status = call("GET", JOBS .. "status:" .. id)
  if status ~= "dead" and call("LREM", WAITING, 1, id) > 0 then return "waiting" end
  if call("LREM", DEAD, 1, id) > 0 then return "dead" end
  return status or "unknown"
end

local function delete_job(id)
  local names = {}
  for position, part in ipairs(KEPT) do names[position] = JOBS .. part .. id end
  local deleted = call("DEL", unpack(names))
  -- its fence stays a while: a late word from a former life must not hold in the next
  call("EXPIRE", JOBS .. "fence:" .. id, 86400)
  return deleted
end

-- type and queue, as far as they are still known
local function description(id)
  local raw, job = load_job(id)
  if raw then return job end
  local summary = try("GET", JOBS .. "summary:" .. id)
  return type(summary) == "string" and read_job(summary) or UNREADABLE
end
