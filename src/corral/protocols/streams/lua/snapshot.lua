-- snapshot: those of some jobs that pass a filter.
-- KEYS     hash of each job
-- ARGV[1]  msgpack [statuses or false, tasks or false, created since ms or false, until ms or false]
-- Returns  [fields, …]
local call = redis.call
local filter = cmsgpack.unpack(ARGV[1])

local function as_set(list)
  if not list then return nil end
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

local statuses, tasks = as_set(filter[1]), as_set(filter[2])
local rows = {}
for _, job in ipairs(KEYS) do
  local known = redis.pcall("HMGET", job, "status", "task", "created_ts")
  if not known.err and known[1] then
    local at = tonumber(known[3]) or 0
    local passes = (not statuses or statuses[known[1]]) and (not tasks or tasks[known[2] or ""])
    if passes and not (filter[3] and at < filter[3]) and not (filter[4] and at > filter[4]) then
      rows[#rows + 1] = call("HGETALL", job)
    end
  end
end
return rows
