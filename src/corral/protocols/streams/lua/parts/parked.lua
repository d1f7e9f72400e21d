-- Jobs that were claimed by a worker without a handler for them are parked: pending under a consumer of ours for each
-- task, from which workers that know the task claim first. XCLAIM … JUSTID spends no delivery.
-- jobs:parked exists while there are any; each of its entries wakes the workers that wait.
-- use ownership
local PARKED, PARKING = ROOT .. "jobs:parked", "corral:parked:"
local PARKED_S, MOST_WAKES = 86400, 100

-- Returns [[consumer, task, pending], …] of the tasks of which jobs are parked.
local function parkings()
  local consumers, found = try("XINFO", "CONSUMERS", STREAM, GROUP), {}
  for _, flat in ipairs(consumers.err and {} or consumers) do
    local consumer = fields_of(flat)
    if string.sub(consumer.name, 1, #PARKING) == PARKING then
      found[#found + 1] = {consumer.name, string.sub(consumer.name, #PARKING + 1), consumer.pending}
    end
  end
  return found
end

local function park(entry, id, task, ttl, at)
  emit(id, task, ttl, "queued", at, "worker.park", "{}")
  call("XCLAIM", STREAM, GROUP, PARKING .. task, 0, entry, "JUSTID")
  call("HSET", JOB .. id, "status", "queued", "updated_ts", at)
  call("XADD", PARKED, "MAXLEN", "~", MOST_WAKES, "*", "task", task)
  call("EXPIRE", PARKED, PARKED_S)
end

-- Delete the consumers under which nothing is parked any more; returns the tasks of the others.
local function clean_parkings()
  local tasks = {}
  for _, parking in ipairs(parkings()) do
    if parking[3] == 0 then
      call("XGROUP", "DELCONSUMER", STREAM, GROUP, parking[1])
    else
      tasks[#tasks + 1] = parking[2]
    end
  end
  if #tasks == 0 then call("DEL", PARKED) end
  return tasks
end
