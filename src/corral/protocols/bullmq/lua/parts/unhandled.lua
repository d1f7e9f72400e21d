-- Jobs of which the worker has no handler.
local FIRST_POSTPONEMENT_MS, LONGEST_POSTPONEMENT_MS, SERVED_MS = 1000, 30000, 60000

-- Whether a worker with a handler for jobs of this name was there lately; protocols/lua/record.lua writes it.
local function is_served(name, at, after)
  local seen = redis.pcall("HMGET", "corral:bullmq:" .. PREFIX .. "served", name, "*")
  if seen.err then return false end
  local last = math.max(tonumber(seen[1] or 0) or 0, tonumber(seen[2] or 0) or 0)
  return at - last < math.max(after, SERVED_MS)
end

-- A job whose worker has no handler for it is postponed for others, longer each time; it fails when no worker has
-- had one for so long. The time first seen is in a key of ours, which expires.
local function resolve_unhandled(row, job)
  local key, at, after = PREFIX .. "unhandled:" .. row[1], tonumber(row[4]), row[13]
  local known = redis.pcall("GET", key)
  local first, tries = string.match(type(known) == "string" and known or "", "^(%d+) (%d+)$")
  first, tries = tonumber(first) or at, tonumber(tries) or 0
  if at - first >= after and not is_served(call("HGET", job, "name") or "", at, after) then
    call("DEL", key)
    row[3] = "failed"
  else
    call("SET", key, string.format("%.0f %d", first, tries + 1), "PX", string.format("%.0f", after + SERVED_MS))
    row[3], row[13] = "postponed", math.min(FIRST_POSTPONEMENT_MS * 2 ^ tries, LONGEST_POSTPONEMENT_MS)
  end
end
