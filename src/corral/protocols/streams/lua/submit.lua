-- submit: create jobs whole: hash, lifetime, first event, queue entry, and the idempotency key where one is given.
-- KEYS     jobs:stream jobs:events, then hash, events and deliveries of each job, then its idempotency keys, then
--          the ledger where there is one
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] msgpack [row, …] (parts/create)
-- ARGV[7]  the ledger or ""   ARGV[8] seconds it is kept
-- Returns  ["added", [id, …], [position, …] of those that existed], or
--          ["conflict" | "unfinished", position, id]: then nothing was written
-- use create
local LEDGER = ARGV[7] ~= "" and ARGV[7] or nil
local rows = cmsgpack.unpack(ARGV[6])
local ids, fresh, refused, existing = plan(rows, LEDGER)
if refused then return refused end
if LEDGER and #rows > 0 then
  for _, row in ipairs(rows) do call("SADD", LEDGER, row[1]) end
  call("EXPIRE", LEDGER, ARGV[8])
end
for _, row in ipairs(fresh) do create(row) end
return {"added", ids, existing}
