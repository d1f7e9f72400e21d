-- backlog: count undelivered and pending entries without sending a payload.
-- KEYS     jobs:stream
-- ARGV[1]  id to count after, or "" at the start   ARGV[2] most entries counted a call
-- Returns  undelivered (in this call) and parked (in the first), pending for workers, last delivered id, id to count after or ""
-- use backlog
local waiting, pending, last = group_state(KEYS[1])
local parked = parked_count(KEYS[1])
pending = pending - parked
if waiting then return {waiting + parked, pending, last, ""} end
local counted, after = count_after(KEYS[1], ARGV[1] ~= "" and ARGV[1] or last, tonumber(ARGV[2]))
if ARGV[1] == "" then counted = counted + parked end
return {counted, pending, last, after}
