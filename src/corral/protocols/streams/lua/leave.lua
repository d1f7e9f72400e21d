-- leave: this worker says good-bye; its consumer goes with it unless entries are still pending for it.
-- KEYS     jobs:stream jobs:events jobs:workers, then jobs:trip:BROKER where a broker leaves
-- ARGV[1]  .. [5] as in parts/story
-- Returns  1 where the consumer is gone, else 0
-- use story
if KEYS[4] then call("DEL", KEYS[4]) end
local consumers = try("XINFO", "CONSUMERS", STREAM, GROUP)
for _, flat in ipairs(consumers.err and {} or consumers) do
  local consumer = fields_of(flat)
  if consumer.name == SPEAKER then
    -- deleting a consumer throws its pending entries away: they are left to recovery
    if consumer.pending > 0 then return 0 end
    call("XGROUP", "DELCONSUMER", STREAM, GROUP, SPEAKER)
  end
end
call("HDEL", KEYS[3], SPEAKER)
return 1
