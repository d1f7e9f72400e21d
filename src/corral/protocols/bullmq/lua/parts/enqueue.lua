-- Enqueue new jobs: at either end of the list, prioritized, or delayed.
-- use queue

-- The functions for one batch.
local function enqueuing(state)
  local blocked = is_blocked(state)
  local front, back = {}, {}
  local claimable = false

  local function enqueue(id, envelope)
    local delay, priority = envelope[5], envelope[6]
    if delay > 0 then
      delay_job(id, envelope[4] + delay)
      return
    end
    claimable = true
    if priority > 0 then
      call("ZADD", PRIORITIZED, priority_score(priority), id)
    elseif envelope[7] then
      front[#front + 1] = id
    else
      back[#back + 1] = id
    end
    call("XADD", EVENTS, "*", "event", "waiting", "jobId", id)
  end

  -- each end of the list takes its jobs in one call
  local function push()
    if #back > 0 then call("LPUSH", state.target, unpack(back)) end
    if #front > 0 then call("RPUSH", state.target, unpack(front)) end
    front, back = {}, {}
  end

  -- All have been added: push them, and wake a worker.
  local function close()
    push()
    if claimable then wake(blocked) end
    call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state))
  end

  return enqueue, push, close
end
