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

-- How many pending entries are parked (parts/parked): they wait, for workers with a handler for them.
local function parked_count(stream)
  if redis.call("EXISTS", string.sub(stream, 1, -#"stream" - 1) .. "parked") == 0 then return 0 end
  local count, consumers = 0, redis.pcall("XINFO", "CONSUMERS", stream, "workers")
  for _, flat in ipairs(consumers.err and {} or consumers) do
    local consumer = {}
    for i = 1, #flat, 2 do consumer[flat[i]] = flat[i + 1] end
    if string.sub(consumer.name, 1, 14) == "corral:parked:" then count = count + consumer.pending end
  end
  return count
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
