-- range: entries of a stream, as many as fit into a number of bytes and at least one.
-- KEYS     the stream
-- ARGV[1]  from this id ("(…" after it)   ARGV[2] most entries   ARGV[3] most bytes
-- Returns  [[id, fields], …], the first id that the stream keeps or "", are there more (1) or not (0)
local call, most, left = redis.call, tonumber(ARGV[2]), tonumber(ARGV[3])
local rows, from, count = {}, ARGV[1], 1
while #rows < most and left > 0 do
  local entries = call("XRANGE", KEYS[1], from, "+", "COUNT", count)
  for _, entry in ipairs(entries) do
    local size = #entry[1]
    for _, part in ipairs(entry[2]) do size = size + #part end
    if #rows > 0 and size > left then
      left = 0
      break
    end
    rows[#rows + 1] = entry
    left = left - size
    from = "(" .. entry[1]
  end
  if #entries < count or left <= 0 then break end
  -- as many as should fit, if they are like those before, but no more than twice as many
  local used = tonumber(ARGV[3]) - left
  count = math.max(math.min(2 * count, math.floor(left * #rows / math.max(used, 1)), most - #rows), 1)
end
local first = call("XRANGE", KEYS[1], "-", "+", "COUNT", 1)[1]
return {rows, first and first[1] or "", (left <= 0 or #rows >= most) and 1 or 0}
