-- locate: where some ids are listed, exactly, and whether each has a record and a lock.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [[id, has a record, has a lock, place, place, …], …]
-- use queue
local LISTS = {wait = WAIT, paused = PAUSED, active = ACTIVE}
local SETS = {
  completed = COMPLETED, failed = FAILED, delayed = DELAYED, prioritized = PRIORITIZED,
  ["waiting-children"] = PREFIX .. "waiting-children",
}

local rows = {}
for _, id in ipairs(ARGV) do
  local known = redis.pcall("HMGET", PREFIX .. id, "name", "timestamp")
  local is_job = not known.err and known[1] and known[2]
  local row = {id, is_job and 1 or 0, call("EXISTS", PREFIX .. id .. ":lock")}
  for name, key in pairs(LISTS) do
    for _ = 1, #call("LPOS", key, id, "COUNT", 0) do row[#row + 1] = name end
  end
  if call("ZSCORE", PREFIX .. "grouped", id) then row[#row + 1] = "wait" end
  for name, key in pairs(SETS) do
    if call("ZSCORE", key, id) then row[#row + 1] = name end
  end
  rows[#rows + 1] = row
end
return rows
