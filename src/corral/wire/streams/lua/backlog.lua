-- backlog: what waits and what is in hand, without copying a payload to the client.
-- KEYS     jobs:stream
-- ARGV[1]  where to go on counting, or "" at the start   ARGV[2] most entries counted a call
-- Returns  undelivered (in this call), pending, last delivered id, where to go on or ""
local call = redis.call
local STREAM, PAGE = KEYS[1], 100
local last, pending, lag = "0-0", 0, nil
if call("EXISTS", STREAM) == 0 then return {0, 0, last, ""} end
for _, flat in ipairs(call("XINFO", "GROUPS", STREAM)) do
  local group = {}
  for i = 1, #flat, 2 do group[flat[i]] = flat[i + 1] end
  if group.name == "workers" then
    last, pending, lag = group["last-delivered-id"], group.pending, group.lag
  end
end
if last == "0-0" then return {call("XLEN", STREAM), pending, last, ""} end
if lag then return {lag, pending, last, ""} end

-- the server cannot tell (before 7.0, or after an undelivered entry was deleted): count, in bounded steps
local counted, from = 0, ARGV[1] ~= "" and ARGV[1] or last
while counted < tonumber(ARGV[2]) do
  local entries = call("XRANGE", STREAM, "(" .. from, "+", "COUNT", PAGE)
  counted = counted + #entries
  if #entries < PAGE then return {counted, pending, last, ""} end
  from = entries[#entries][1]
end
return {counted, pending, last, from}
