-- hold: take jobs out of where they are listed, so that nobody claims them while they are moved elsewhere.
-- KEYS     keys.fixed, then the run, the held jobs
-- ARGV[1]  id of the run   ARGV[2] batch   ARGV[3] msgpack [[id, …], …]: each list is held whole or not at all
-- Returns  for each list [receipt, …], or why not: active, gone, scheduled, flow; nothing where the run has ended
-- use remove_job
local RUN, HELD = KEYS[FIXED + 1], KEYS[FIXED + 2]
if call("HGET", RUN, "id") ~= ARGV[1] then return false end
local groups = cmsgpack.unpack(ARGV[3])
local SETS = {"delayed", "prioritized", "waiting-children", "completed", "failed"}

-- Jobs come in the order of the list, so the end from which workers claim is read once for all of them.
local near, leaving, window = {}, {}, 64
for _, group in ipairs(groups) do window = window + 2 * #group end

local function tail_of(list)
  if not near[list] then
    local tail = {ids = call("LRANGE", list, -window, -1), has = {}}
    for _, id in ipairs(tail.ids) do tail.has[id] = true end
    near[list] = tail
  end
  return near[list]
end

-- Returns the place of a job, and its score there.
local function place_of(id)
  if leaving[id] or call("EXISTS", PREFIX .. id) == 0 then return "gone" end
  for _, name in ipairs(SETS) do
    local score = call("ZSCORE", PREFIX .. name, id)
    if score then return name, score end
  end
  for _, list in ipairs({WAIT, PAUSED}) do
    if tail_of(list).has[id] then return "wait", list end
  end
  for _, list in ipairs({WAIT, PAUSED}) do
    if call("LPOS", list, id) then return "wait", list end
  end
  return call("LPOS", ACTIVE, id) and "active" or "gone"
end

local function has_other_children(id, members)
  for _, child in ipairs(call("SMEMBERS", PREFIX .. id .. ":dependencies")) do
    if not members[child] then return true end
  end
  return false
end

-- Returns why a job cannot be held with these others, or its place and score.
local function look_at(id, members)
  local place, score = place_of(id)
  if place == "gone" or place == "active" then return place end
  if call("EXISTS", PREFIX .. id .. ":lock") == 1 then return "active" end
  if is_next_of_scheduler(id) then return "scheduled" end
  local parent = call("HGET", PREFIX .. id, "parentKey")
  local is_over = place == "completed" or place == "failed"
  if parent and parent ~= "" and not members[parent] and not is_over and call("EXISTS", parent) == 1 then
    return "flow"
  end
  if has_other_children(id, members) then return "flow" end
  return nil, place, score
end

local function take(id, place, score)
  if place ~= "wait" then
    call("ZREM", PREFIX .. place, id)
  elseif near[score].has[id] then
    leaving[id] = true
  else
    call("LREM", score, -1, id)
  end
  local receipt = cmsgpack.pack({ARGV[2], place, place == "wait" and "" or score, id})
  call("ZADD", HELD, call("HINCRBY", RUN, "sequence", 1), receipt)
  return receipt
end

local answers = {}
for number, group in ipairs(groups) do
  local members, found, refusal = {}, {}, nil
  for _, id in ipairs(group) do members[PREFIX .. id] = true end
  for position, id in ipairs(group) do
    local place, score
    refusal, place, score = look_at(id, members)
    if refusal then break end
    found[position] = {id, place, score}
  end
  if refusal then
    answers[number] = refusal
  else
    local receipts = {}
    for position, row in ipairs(found) do receipts[position] = take(unpack(row)) end
    answers[number] = receipts
  end
end
for list, tail in pairs(near) do
  local kept = {}
  for _, id in ipairs(tail.ids) do
    if not leaving[id] then kept[#kept + 1] = id end
  end
  if #kept < #tail.ids then
    call("LTRIM", list, 0, -#tail.ids - 1)
    in_chunks(kept, 5000, function(from, to) call("RPUSH", list, unpack(kept, from, to)) end)
  end
end
return answers
