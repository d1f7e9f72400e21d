-- The ids of active jobs that are locked under one receipt.
local function claimed_under(receipt)
  local active, ids = call("LRANGE", ACTIVE, 0, -1), {}
  for from = 1, #active, 1000 do
    local names = {}
    for i = from, math.min(from + 999, #active) do names[#names + 1] = PREFIX .. active[i] .. ":lock" end
    for i, lock in ipairs(call("MGET", unpack(names))) do
      if lock == receipt then ids[#ids + 1] = active[from + i - 1] end
    end
  end
  return ids
end
