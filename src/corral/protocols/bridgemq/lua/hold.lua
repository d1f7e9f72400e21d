-- hold: take jobs out of where they are listed, so that nobody claims them while they are moved elsewhere.
-- KEYS     .. [11] keys.fixed, then the run, the held jobs
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] id of the run   ARGV[5] batch   ARGV[6] msgpack [[id], …]   ARGV[7] queue
-- Returns  for each [receipt], or why not: active, gone, scheduled; nothing where the run has ended
-- use keys
-- use remove_job
local RUN, HELD = KEYS[FIXED + 1], KEYS[FIXED + 2]
if call("HGET", RUN, "id") ~= ARGV[4] then return false end
local groups = cmsgpack.unpack(ARGV[6])

-- Jobs come in the order of the list, so the end from which workers claim is read once for all of them.
local head = call("LRANGE", WAITING, 0, 2 * #groups + 63)
local near, leaving, has_left = {}, {}, false
for _, id in ipairs(head) do near[id] = true end

-- Returns the place of a job and its score there, having taken it out.
local function take(id)
  if call("SISMEMBER", ACTIVE, id) == 1 then return "active" end
  if call("ZSCORE", CRON, id) then return "scheduled" end
  for name, set in pairs({delayed = DELAYED, completed = COMPLETED}) do
    local score = call("ZSCORE", set, id)
    if score then
      call("ZREM", set, id)
      return name, score
    end
  end
  if leaving[id] then return "gone" end
  if near[id] then
    leaving[id], has_left = true, true
    return "waiting", ""
  end
  if call("LREM", WAITING, 1, id) > 0 then return "waiting", "" end
  if call("LREM", DEAD, 1, id) > 0 then return "dead", "" end
  return "gone"
end

local answers = {}
for number, group in ipairs(groups) do
  local id = group[1]
  local place, score = "gone", nil
  if description(id).queue == ARGV[7] then place, score = take(id) end
  if score then
    local status = call("GET", JOBS .. "status:" .. id) or place
    local receipt = cmsgpack.pack({ARGV[5], place, score, id, status})
    call("ZADD", HELD, call("HINCRBY", RUN, "sequence", 1), receipt)
    answers[number] = {receipt}
  else
    answers[number] = place
  end
end
if has_left then
  call("LTRIM", WAITING, #head, -1)
  for position = #head, 1, -1 do
    if not leaving[head[position]] then call("LPUSH", WAITING, head[position]) end
  end
end
return answers
