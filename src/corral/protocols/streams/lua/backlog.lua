-- backlog: count undelivered and pending entries without sending a payload.
-- KEYS     jobs:stream
-- ARGV[1]  id to count after, or "" at the start   ARGV[2] most entries counted a call
-- Returns  undelivered (in this call), pending, last delivered id, id to count after or ""
-- use backlog
local waiting, pending, last = group_state(KEYS[1])
if waiting then return {waiting, pending, last, ""} end
local counted, after = count_after(KEYS[1], ARGV[1] ~= "" and ARGV[1] or last, tonumber(ARGV[2]))
return {counted, pending, last, after}
