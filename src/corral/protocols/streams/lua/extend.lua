-- extend: renew claims that are still held, and the lifetimes of their jobs.
-- KEYS     jobs:stream jobs:events, then hash and events of each job
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] msgpack [[entry, owner, deliveries, id], …]
-- Returns  [0 | code, …]
-- use renew
local codes = {}
for position, row in ipairs(cmsgpack.unpack(ARGV[6])) do codes[position] = isolated(renew, row) end
return codes
