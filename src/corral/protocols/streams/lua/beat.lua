-- beat: this worker is alive; it stands in the group and in the registry.
-- KEYS     jobs:stream jobs:events jobs:workers
-- ARGV[1]  .. [5] as in parts/story   ARGV[6] lock ms
-- Returns  0
-- use story
call("HSET", KEYS[3], SPEAKER, NOW .. " " .. ARGV[6])
if type(try("XGROUP", "CREATECONSUMER", STREAM, GROUP, SPEAKER)) == "table" then
  -- an error: there is no group yet
  call("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM")
  call("XGROUP", "CREATECONSUMER", STREAM, GROUP, SPEAKER)
end
return 0
