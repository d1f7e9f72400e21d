-- release_lock: the document's own release: the holder of the lock deletes it, and frees its slot.
-- KEYS[1]  lock   KEYS[2] active   KEYS[3] concurrent counter of the job's type
-- ARGV[1]  worker id   ARGV[2] job id
-- Returns  1 where it was released, 0 where it is not this worker's
-- use document_keys
-- use jobs
local refused = name_from(KEYS[2], "active")
if refused then return refused end
if call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
call("DEL", KEYS[1])
call("HDEL", HOLDERS, ARGV[2])
call("SREM", CANCELLING, ARGV[2])
-- the slot of a job that recovery removed from active is free already
if call("SREM", KEYS[2], ARGV[2]) == 1 then
  local left = call("DECR", KEYS[3])
  if left <= 0 then call("DEL", KEYS[3]) end
end
return 1
