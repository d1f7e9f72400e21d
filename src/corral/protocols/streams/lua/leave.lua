-- leave: deregister a worker; its consumer is deleted unless entries are still pending for it.
-- KEYS     jobs:stream jobs:events jobs:workers, then jobs:trip:BROKER where a broker leaves
-- ARGV[1]  .. [5] as in parts/job_events
-- Returns  1 where the consumer was deleted, else 0
-- use job_events
if KEYS[4] then call("DEL", KEYS[4]) end
local consumers = try("XINFO", "CONSUMERS", STREAM, GROUP)
for _, flat in ipairs(consumers.err and {} or consumers) do
  local consumer = fields_of(flat)
  if consumer.name == WORKER then
    -- deleting a consumer would drop its pending entries: they are left to recovery
    if consumer.pending > 0 then return 0 end
    call("XGROUP", "DELCONSUMER", STREAM, GROUP, WORKER)
  end
end
call("HDEL", KEYS[3], WORKER)
return 1
