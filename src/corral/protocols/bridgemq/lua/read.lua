-- read: everything about some jobs, at one moment.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue, or "" for any   ARGV[5] .. job ids
-- Returns  [[id, JSON, status, result, attempts, fence, failure, progress, summary, holder], …] of those that exist;
--          "" where a job has no such part
-- use keys
-- use jobs
local PARTS = {"data:", "status:", "result:", "attempts:", "fence:", "progress:", "summary:"}

-- The state of a job without a status, which a foreign client may leave out.
local function found_in(id)
  if call("ZSCORE", DELAYED, id) then return "delayed" end
  if call("ZSCORE", CRON, id) then return "cron" end
  if call("LPOS", WAITING, id) then return "waiting" end
  if call("LPOS", DEAD, id) then return "dead" end
  return ""
end

local function is_wanted(raw, summary)
  if ARGV[4] == "" then return true end
  local job = raw and read_job(raw) or summary and read_job(summary) or UNREADABLE
  return job.queue == ARGV[4]
end

local rows = {}
for position = 5, #ARGV do
  local id, names = ARGV[position], {}
  for i, part in ipairs(PARTS) do names[i] = JOBS .. part .. id end
  local known = call("MGET", unpack(names))
  -- another kind of key: shown as what is no job
  if not known[1] and call("EXISTS", names[1]) == 1 then known[1] = "not a string" end
  if (known[1] or known[2] or known[3]) and is_wanted(known[1], known[7]) then
    local failure = try("HGETALL", JOBS .. "failure:" .. id)
    local status = known[2] or found_in(id)
    if call("SISMEMBER", ACTIVE, id) == 1 then status = "active" end
    rows[#rows + 1] = {id, known[1] or "", status, known[3] or "", known[4] or "", known[5] or "",
                       failure.err and {} or failure, known[6] or "", known[7] or "", call("HGET", HOLDERS, id) or ""}
  end
end
return rows
