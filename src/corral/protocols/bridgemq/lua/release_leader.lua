-- release_leader: delete the leader's lock, if this scheduler holds it.
-- KEYS[1]  scheduler:lock
-- ARGV[1]  scheduler id
-- Returns  1 where it was deleted, else 0
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call("DEL", KEYS[1])
