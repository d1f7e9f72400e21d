-- Waiting jobs of types that the worker has no handler for: left to others, and dead-lettered when no worker has had a
-- handler for so long. When each was first seen is in a key of ours for each type, which expires.
local SERVED_MS, MOST_UNHANDLED, MOST_ENDED = 60000, 32, 100

-- Whether a worker with a handler for this type was there lately; protocols/lua/record.lua writes it.
local function is_served(queue, kind, after)
  local seen = try("HMGET", "corral:bridgemq:" .. ROOT .. queue .. ":served", kind, "*")
  if seen.err then return false end
  local last = math.max(tonumber(seen[1] or 0) or 0, tonumber(seen[2] or 0) or 0)
  return tonumber(NOW) - last < math.max(after, SERVED_MS)
end

local function end_unhandled(seen, ids, kind, after, search)
  local reason = string.format("no worker had a handler for type '%s' within %d s", kind, after / 1000)
  for _, id in ipairs(ids) do
    call("ZREM", seen, id)
    if call("LREM", WAITING, 1, id) == 1 or (search.has_groups and groups_of(search.queue).remove(id)) then
      dead_letter(id, {type = kind, queue = search.queue}, reason, "NoHandler", search.result_s)
      search.cursor = fresh()
    end
  end
end

local function note_unhandled(search, after)
  local types, known = search.cursor[8], {}
  for _, kind in ipairs(types) do known[kind] = true end
  for kind, ids in pairs(search.unhandled) do
    if not known[kind] and #types < MOST_UNHANDLED then types[#types + 1] = kind end
    local seen, rows = JOBS .. "unhandled:" .. search.queue .. ":" .. kind, {}
    for _, id in ipairs(ids) do append(rows, NOW, id) end
    call("ZADD", seen, "NX", unpack(rows))
    call("PEXPIRE", seen, integer(after + SERVED_MS))
    if not is_served(search.queue, kind, after) then
      end_unhandled(seen, call("ZRANGEBYSCORE", seen, "-inf", tonumber(NOW) - after, "LIMIT", 0, MOST_ENDED), kind,
                    after, search)
    end
    local first = call("ZRANGE", seen, 0, 0, "WITHSCORES")
    if first[2] then again_at(search.cursor, math.max(tonumber(first[2]) + after - tonumber(NOW), 1000)) end
  end
end
