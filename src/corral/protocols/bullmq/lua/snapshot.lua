-- snapshot: those of some jobs that are wanted, each with the state it is in.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [states or false, names or false, created since ms or false, until ms or false]
-- ARGV[2]  .. ids
-- Returns  [[id, fields, state on the wire], …]
-- use queue
local wanted = cmsgpack.unpack(ARGV[1])
local since, until_ = wanted[3], wanted[4]

local function as_set(list)
  if not list then return nil end
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

local states, names = as_set(wanted[1]), as_set(wanted[2])
local active

-- The cheap answers first. A job in none of these is waiting: to look for it in a long list would take as
-- long as the list, for each job again.
local function state_of(id)
  if call("ZSCORE", COMPLETED, id) then return "completed" end
  if call("ZSCORE", FAILED, id) then return "failed" end
  if call("ZSCORE", DELAYED, id) then return "delayed" end
  if call("ZSCORE", PRIORITIZED, id) then return "prioritized" end
  if call("ZSCORE", PREFIX .. "waiting-children", id) then return "waiting-children" end
  if not active then active = as_set(call("LRANGE", ACTIVE, 0, -1)) end
  return active[id] and "active" or "waiting"
end

local function is_wanted(name, created)
  if names and not names[name] then return false end
  local at = tonumber(created) or 0
  return not (since and at < since) and not (until_ and at > until_)
end

local found = {}
for position = 2, #ARGV do
  local id = ARGV[position]
  local job = PREFIX .. id
  -- other hashes under this name have not both of these
  local known = redis.pcall("HMGET", job, "name", "timestamp")
  if not known.err and known[1] and known[2] and is_wanted(known[1], known[2]) then
    local state = state_of(id)
    if not states or states[state] then
      found[#found + 1] = {id, call("HGETALL", job), state}
    end
  end
end
return found
