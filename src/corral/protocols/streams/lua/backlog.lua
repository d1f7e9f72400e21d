-- backlog: what waits and what is in hand, without copying a payload to the client.
-- KEYS     jobs:stream
-- ARGV[1]  where to go on counting, or "" at the start   ARGV[2] most entries counted a call
-- Returns  undelivered (in this call), pending, last delivered id, where to go on or ""
-- use backlog
local waiting, pending, last = group_state(KEYS[1])
if waiting then return {waiting, pending, last, ""} end
local counted, going_on = count_after(KEYS[1], ARGV[1] ~= "" and ARGV[1] or last, tonumber(ARGV[2]))
return {counted, pending, last, going_on}
