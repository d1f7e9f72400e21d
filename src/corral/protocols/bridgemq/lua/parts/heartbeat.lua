-- Write a worker's heartbeat: the document's three keys. `metadata` "" leaves its description alone.
local function beat(heartbeat_ms, metadata)
  call("SET", ROOT .. "workers:heartbeat:" .. WORKER, NOW, "PX", heartbeat_ms)
  call("SADD", ROOT .. "workers:active", WORKER)
  if metadata ~= "" then call("SET", ROOT .. "workers:" .. WORKER, metadata) end
end
