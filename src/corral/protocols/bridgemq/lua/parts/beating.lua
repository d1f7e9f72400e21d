-- A worker says that it is alive: the document's three keys. `metadata` "" leaves its description alone.
local function beat(heartbeat_ms, metadata)
  call("SET", ROOT .. "workers:heartbeat:" .. SPEAKER, NOW, "PX", heartbeat_ms)
  call("SADD", ROOT .. "workers:active", SPEAKER)
  if metadata ~= "" then call("SET", ROOT .. "workers:" .. SPEAKER, metadata) end
end
