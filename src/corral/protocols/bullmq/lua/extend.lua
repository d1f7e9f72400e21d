-- extend: renew the locks of claims that are still held.
-- KEYS     keys.fixed, then the lock of each claim, in order
-- ARGV[1]  lock ms   ARGV[2] msgpack [[id, receipt], …]
-- Returns  [position, …] of claims that are lost, [position, …] of claims to be cancelled
-- use queue
local rows = cmsgpack.unpack(ARGV[2])
local locks = call("MGET", unpack(KEYS, FIXED + 1, FIXED + #rows))
local lost, ours = {}, {}
for i, row in ipairs(rows) do
  if locks[i] == row[2] then
    -- a full server refuses SET, and every running job would lose its lock; PEXPIRE takes no memory
    call("PEXPIRE", KEYS[FIXED + i], ARGV[1])
    ours[#ours + 1] = row[1]
  else
    lost[#lost + 1] = i
  end
end
if #ours > 0 then call("SREM", STALLED, unpack(ours)) end

local cancelled = {}
if call("EXISTS", CANCELLING) == 1 then
  for i, row in ipairs(rows) do
    if call("SISMEMBER", CANCELLING, row[1]) == 1 then cancelled[#cancelled + 1] = i end
  end
end
return {lost, cancelled}
