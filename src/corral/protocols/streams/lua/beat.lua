-- beat: record a heartbeat; the worker is in the group and in the registry.
-- KEYS     jobs:stream jobs:events jobs:workers
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] lock ms
-- Returns  0
-- use job_events
call("HSET", KEYS[3], WORKER, NOW .. " " .. ARGV[6])
if type(try("XGROUP", "CREATECONSUMER", STREAM, GROUP, WORKER)) == "table" then
  -- an error: there is no group yet
  call("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM")
  call("XGROUP", "CREATECONSUMER", STREAM, GROUP, WORKER)
end
return 0
