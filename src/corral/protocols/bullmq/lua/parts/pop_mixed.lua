-- The next ids to run of a queue with groups, removed from where they wait: jobs of groups and jobs of none take turns.
-- parts/claim has pop_next.
local function pop_mixed(count, limit, now, state)
  local groups, ids, places = groups_of(state), {}, {}
  local is_alone = call("EXISTS", WAIT, PRIORITIZED) == 0
  local share = is_alone and count or math.floor((count + call("HINCRBY", META, "groupTurn", 1) % 2) / 2)
  if share > 0 then groups.pop(share, limit, now, ids, places) end
  local others, scores = {}, {}
  if #ids < count and not is_alone then others, scores = pop_next(count - #ids) end
  for i, id in ipairs(others) do
    ids[#ids + 1] = id
    places[#ids] = scores[i]
  end
  if #ids < count and share < count then groups.pop(count - #ids, limit, now, ids, places) end
  return ids, places
end
