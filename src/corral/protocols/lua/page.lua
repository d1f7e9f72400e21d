-- page: members of a sorted set behind a place in it; the member of that place may be gone.
-- KEYS[1]  the sorted set
-- ARGV[1]  "1": the highest scores first   ARGV[2] how many   ARGV[3] score and ARGV[4] member of the place; absent: from the beginning
-- Returns  member, score, member, score, …
local key, is_reverse, count = KEYS[1], ARGV[1] == '1', tonumber(ARGV[2])

-- by bytes, as the server orders members: `<` would follow its locale
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- how many members are before the place, from the lowest score on
local function before(score, member)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if precedes(redis.call('ZRANGE', key, middle, middle)[1], member) then low = middle + 1 else high = middle end
  end
  return low
end

local start = 0
if ARGV[3] then
  local rank = before(ARGV[3], ARGV[4])
  if is_reverse then
    start = redis.call('ZCARD', key) - rank
  else
    start = rank
    if redis.call('ZRANGE', key, rank, rank)[1] == ARGV[4] then start = rank + 1 end
  end
end
return redis.call(is_reverse and 'ZREVRANGE' or 'ZRANGE', key, start, start + count - 1, 'WITHSCORES')
