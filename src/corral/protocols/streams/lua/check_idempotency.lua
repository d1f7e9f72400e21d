-- check_idempotency: would jobs be refused for their idempotency keys? Nothing is written.
-- KEYS     jobs:stream jobs:events, then hash, events and deliveries of each job, then its idempotency keys
-- ARGV[1]  .. [5] as in parts/story   ARGV[6] msgpack [row, …] (parts/creation), without payloads
-- Returns  as submit
-- use creation
local ids, _, refused, existing = plan(cmsgpack.unpack(ARGV[6]))
return refused or {"added", ids, existing}
