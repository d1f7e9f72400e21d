-- snapshot: those of some jobs that pass a filter, each with its state.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [states or false, names or false, created since ms or false, until ms or false]
-- ARGV[2]  .. ids
-- Returns  [[id, fields, state on the wire], …]
-- use queue
local filter = cmsgpack.unpack(ARGV[1])
local since, until_ = filter[3], filter[4]

local function as_set(list)
  if not list then return nil end
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

local states, names = as_set(filter[1]), as_set(filter[2])
local active

-- The cheap reads first. A job in none of these is waiting: searching the long list for each would take long.
local function state_of(id)
  if call("ZSCORE", COMPLETED, id) then return "completed" end
  if call("ZSCORE", FAILED, id) then return "failed" end
  if call("ZSCORE", DELAYED, id) then return "delayed" end
  if call("ZSCORE", PRIORITIZED, id) then return "prioritized" end
  if call("ZSCORE", PREFIX .. "waiting-children", id) then return "waiting-children" end
  if not active then active = as_set(call("LRANGE", ACTIVE, 0, -1)) end
  return active[id] and "active" or "waiting"
end

local function passes(name, created)
  if names and not names[name] then return false end
  local at = tonumber(created) or 0
  return not (since and at < since) and not (until_ and at > until_)
end

local rows = {}
for position = 2, #ARGV do
  local id = ARGV[position]
  local job = PREFIX .. id
  -- other hashes of the queue do not have both
  local known = redis.pcall("HMGET", job, "name", "timestamp")
  if not known.err and known[1] and known[2] and passes(known[1], known[2]) then
    local state = state_of(id)
    if not states or states[state] then
      rows[#rows + 1] = {id, call("HGETALL", job), state}
    end
  end
end
return rows
