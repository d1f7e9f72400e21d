-- Returns undelivered (false where the server does not know), pending, last delivered id.
local function group_state(stream)
  local last, pending, lag = "0-0", 0, false
  if redis.call("EXISTS", stream) == 0 then return 0, pending, last end
  for _, flat in ipairs(redis.call("XINFO", "GROUPS", stream)) do
    local group = {}
    for i = 1, #flat, 2 do group[flat[i]] = flat[i + 1] end
    if group.name == "workers" then
      last, pending, lag = group["last-delivered-id"], group.pending, group.lag
    end
  end
  if last == "0-0" then return redis.call("XLEN", stream), pending, last end
  -- before 7.0, or after an undelivered entry was deleted, there is no lag
  return lag or false, pending, last
end

-- Count entries after `from` in pages, up to `most`; returns how many, and the id to count after ("" at the end).
local function count_after(stream, from, most)
  local page, counted = 100, 0
  while counted < most do
    local entries = redis.call("XRANGE", stream, "(" .. from, "+", "COUNT", page)
    counted = counted + #entries
    if #entries < page then return counted, "" end
    from = entries[#entries][1]
  end
  return counted, from
end
