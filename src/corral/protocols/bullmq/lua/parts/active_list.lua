-- Remove ids from `active` (whose members are given) in one pass; returns {id = true} of those that were in it.
local function remove_from_active(active, gone)
  local kept, left = {}, {}
  for _, id in ipairs(active) do
    if gone[id] then left[id] = true else kept[#kept + 1] = id end
  end
  if #kept < #active then
    call("DEL", ACTIVE)
    in_chunks(kept, 5000, function(from, to) call("RPUSH", ACTIVE, unpack(kept, from, to)) end)
  end
  return left
end
