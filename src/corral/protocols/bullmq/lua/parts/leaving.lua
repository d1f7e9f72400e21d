-- Take ids out of active (a list of its members) in one pass, however many there are; which were there.
local function leave_together(active, gone)
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
