-- obliterate: delete a paused queue, some jobs at a time.
-- KEYS     keys.fixed
-- ARGV[1]  most jobs deleted   ARGV[2] 1 where active jobs go too
-- Returns  0 it is deleted, 1 there is more, -1 it is not paused, -2 it has active jobs
-- use delete_jobs
if call("HEXISTS", META, "paused") == 0 then return -1 end
local left, state = tonumber(ARGV[1]), queue_state()

local function delete_list(list, ids)
  for _, id in ipairs(ids) do delete_job(id, state) end
  call("LTRIM", list, #ids, -1)
  left = left - #ids
  return left <= 0
end

local function delete_set(set)
  local ids = call("ZRANGE", set, 0, left - 1)
  for _, id in ipairs(ids) do delete_job(id, state) end
  remove_members(set, ids)
  left = left - #ids
  return left <= 0
end

-- Forget which jobs of its group are active.
local function delete_active_of_group(id)
  local name = state.groups and call("HGET", PREFIX .. id, "group")
  if name then call("DEL", PREFIX .. "group:" .. name .. ":active") end
end

local function delete_grouped()
  local ids = call("ZRANGE", PREFIX .. "grouped", 0, left - 1)
  for _, id in ipairs(ids) do
    delete_active_of_group(id)
    leave_group(PREFIX, id)
    delete_job(id, state)
  end
  left = left - #ids
  return left <= 0
end

local function delete_schedulers()
  local ids = call("ZRANGE", REPEAT, 0, left - 1)
  for _, id in ipairs(ids) do call("DEL", REPEAT .. ":" .. id) end
  remove_members(REPEAT, ids)
  left = left - #ids
  return left <= 0
end

local active = call("LRANGE", ACTIVE, 0, left - 1)
if #active > 0 and ARGV[2] ~= "1" then return -2 end
for _, id in ipairs(active) do
  call("DEL", PREFIX .. id .. ":lock")
  delete_active_of_group(id)
end
if delete_list(ACTIVE, active) or delete_set(DELAYED) or delete_schedulers() or delete_set(COMPLETED)
   or delete_list(WAIT, call("LRANGE", WAIT, 0, left - 1)) or delete_list(PAUSED, call("LRANGE", PAUSED, 0, left - 1))
   or delete_set(PRIORITIZED) or delete_set(FAILED) or delete_grouped() then
  return 1
end
if is_six(state) then call("DEL", MARKER) end
call("DEL", EVENTS, PREFIX .. "delay", STALLED_CHECK, STALLED, ID, PRIORITY_COUNTER, META, CANCELLING,
     PREFIX .. "groups", PREFIX .. "groups:full")
for _, kind in ipairs({"completed", "failed"}) do
  call("DEL", PREFIX .. "metrics:" .. kind, PREFIX .. "metrics:" .. kind .. ":data")
end
return 0
