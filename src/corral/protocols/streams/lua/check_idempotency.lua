-- check_idempotency: whether jobs would be refused for their idempotency keys; writes nothing.
-- KEYS     jobs:stream jobs:events, then hash, events and deliveries of each job, then its idempotency keys
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] msgpack [row, …] (parts/create), without payloads
-- Returns  as submit
-- use create
local ids, _, refused, existing = plan(cmsgpack.unpack(ARGV[6]))
return refused or {"added", ids, existing}
