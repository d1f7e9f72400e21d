-- locate: where some ids are listed, exactly, and whether each has a record and a lock.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] .. ids
-- Returns  [[id, has a record, has a lock, place, place, …], …]
-- use keys
-- use groups
local LISTS = {waiting = WAITING, deadletter = DEAD}
local SETS = {delayed = DELAYED, cron = CRON, completed = COMPLETED}

local rows = {}
for position = 4, #ARGV do
  local id = ARGV[position]
  local there = call("EXISTS", JOBS .. "data:" .. id, JOBS .. "status:" .. id, JOBS .. "result:" .. id)
  local row = {id, there > 0 and 1 or 0, call("EXISTS", JOBS .. "lock:" .. id)}
  for name, key in pairs(LISTS) do
    for _ = 1, #call("LPOS", key, id, "COUNT", 0) do row[#row + 1] = name end
  end
  for name, key in pairs(SETS) do
    if call("ZSCORE", key, id) then row[#row + 1] = name end
  end
  if call("SISMEMBER", ACTIVE, id) == 1 then row[#row + 1] = "active" end
  local raw, job = load_job(id)
  if raw and job.group and call("ZSCORE", ROOT .. "groups:" .. job.queue .. ":waiting", id) then
    row[#row + 1] = "waiting"
  end
  rows[#rows + 1] = row
end
return rows
