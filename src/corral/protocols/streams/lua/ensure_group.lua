-- ensure_group: create the consumer group, if there is none.
-- KEYS     jobs:stream
-- Returns  1 where it was created, else 0
-- from 0: jobs queued before the first worker are not lost
local created = redis.pcall("XGROUP", "CREATE", KEYS[1], "workers", "0", "MKSTREAM")
if not created.err then return 1 end
if string.find(created.err, "BUSYGROUP", 1, true) then return 0 end
return created
