-- retry: put ended jobs back in the queue.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [[id, is lifo], …]   ARGV[2] 1 with all attempts anew, else ""
-- Returns  [id, …] that were requeued
-- use queue

-- Let its parent wait for it again.
local function wait_again(job, previous)
  local parent = call("HGET", job, "parentKey")
  if not parent or parent == "" or call("EXISTS", parent) == 0 then return end
  local was_counted
  if previous == "failed" then
    was_counted = call("ZREM", parent .. ":unsuccessful", job)
  else
    was_counted = call("HDEL", parent .. ":processed", job)
  end
  if was_counted == 1 then call("SADD", parent .. ":dependencies", job) end
end

local state = queue_state()
local done = {}
for _, row in ipairs(cmsgpack.unpack(ARGV[1])) do
  local id = row[1]
  local job = PREFIX .. id
  local previous, field
  if call("EXISTS", job) == 1 then
    if call("ZREM", FAILED, id) == 1 then
      previous, field = "failed", "failedReason"
    elseif call("ZREM", COMPLETED, id) == 1 then
      previous, field = "completed", "returnvalue"
    end
  end
  if previous then
    call("HDEL", job, "finishedOn", "processedOn", field)
    if ARGV[2] == "1" then call("HDEL", job, "atm", "attemptsMade") end
    call(row[2] and "RPUSH" or "LPUSH", state.target, id)
    wake(is_blocked(state))
    wait_again(job, previous)
    call("XADD", EVENTS, "MAXLEN", "~", kept_events(state), "*", "event", "waiting", "jobId", id,
         "prev", previous)
    done[#done + 1] = id
  end
end
return done
