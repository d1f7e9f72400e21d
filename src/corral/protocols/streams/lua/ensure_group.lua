-- ensure_group: the group is there, whether or not a worker ever was.
-- KEYS     jobs:stream
-- Returns  1 where it was made now, else 0
-- from 0: what was queued before the first worker came is not lost
local made = redis.pcall("XGROUP", "CREATE", KEYS[1], "workers", "0", "MKSTREAM")
if not made.err then return 1 end
if string.find(made.err, "BUSYGROUP", 1, true) then return 0 end
return made
