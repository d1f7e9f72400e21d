-- submit: create jobs whole: hash, lifetime, first event, queue entry, and the idempotency key where one is given.
-- KEYS     jobs:stream jobs:events, then hash, events and deliveries of each job, then its idempotency keys
-- ARGV[1]  .. [5] as in parts/story   ARGV[6] msgpack [row, …] (parts/creation)
-- Returns  ["ids", id, …], or ["conflict" | "unfinished", position, id]: then nothing was written
-- use creation
local ids, fresh, refused = plan(cmsgpack.unpack(ARGV[6]))
if refused then return refused end
for _, row in ipairs(fresh) do create(row) end
table.insert(ids, 1, "ids")
return ids
