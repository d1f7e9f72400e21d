-- snapshot: those of some jobs that are wanted.
-- KEYS     hash of each job
-- ARGV[1]  msgpack [statuses or false, tasks or false, created since ms or false, until ms or false]
-- Returns  [fields, …]
local call = redis.call
local wanted = cmsgpack.unpack(ARGV[1])

local function as_set(list)
  if not list then return nil end
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

local statuses, tasks = as_set(wanted[1]), as_set(wanted[2])
local found = {}
for _, job in ipairs(KEYS) do
  local known = redis.pcall("HMGET", job, "status", "task", "created_ts")
  if not known.err and known[1] then
    local at = tonumber(known[3]) or 0
    local is_asked = (not statuses or statuses[known[1]]) and (not tasks or tasks[known[2] or ""])
    if is_asked and not (wanted[3] and at < wanted[3]) and not (wanted[4] and at > wanted[4]) then
      found[#found + 1] = call("HGETALL", job)
    end
  end
end
return found
