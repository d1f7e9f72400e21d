-- What a job's end or removal means to its parent, which may be in another queue.
--
--   <parent>:dependencies  SET   keys of children that have not ended
--   <parent>:processed     HASH  key -> result of children that completed
--   <parent>:failed        HASH  key -> reason of failed children that the parent ignores
--   <parent>:unsuccessful  ZSET  keys of failed children that fail the parent, by ms
--
-- Few jobs have a parent, so these functions are made for the first that has.
-- use queue

-- Returns the prefix of a job's queue and its id, from its key.
local function split_key(key)
  local id = string.match(key, ".*:(.*)")
  return string.sub(key, 1, #key - #id), id
end

local function open_parents(own)
  local states = {[PREFIX] = own}

  local function state_of(prefix)
    local state = states[prefix]
    if not state then
      local row = call("HMGET", prefix .. "meta", "paused", "concurrency", "opts.maxLenEvents", "version")
      state = {paused = row[1] ~= false, concurrency = tonumber(row[2]), kept_events = row[3], version = row[4],
               active = prefix .. "active", meta = prefix .. "meta", leaving = 0}
      states[prefix] = state
    end
    return state
  end

  local function wake_at(prefix)
    if not is_blocked(state_of(prefix)) then call("ZADD", prefix .. "marker", 0, "0") end
  end

  -- As the next to run, whatever its priority.
  local function enqueue_first(prefix, id)
    local state = state_of(prefix)
    call("RPUSH", prefix .. (state.paused and not is_six(state) and "paused" or "wait"), id)
    wake_at(prefix)
  end

  local function emit_waiting(prefix, id)
    call("XADD", prefix .. "events", "*", "event", "waiting", "jobId", id, "prev", "waiting-children")
  end

  -- Enqueue a parent that waited for its children, as its options say.
  local function enqueue_parent(prefix, id, at)
    local row = call("HMGET", prefix .. id, "priority", "delay")
    local priority, delay = tonumber(row[1]) or 0, tonumber(row[2]) or 0
    if delay > 0 then
      local due = tonumber(at) + delay
      call("ZADD", prefix .. "delayed", due * 4096, id)
      call("XADD", prefix .. "events", "*", "event", "delayed", "delay", due, "jobId", id)
      local first = call("ZRANGE", prefix .. "delayed", 0, 0, "WITHSCORES")
      call("ZADD", prefix .. "marker", tonumber(first[2]) / 4096, "1")
      return
    end
    if priority == 0 then
      enqueue_first(prefix, id)
    else
      call("ZADD", prefix .. "prioritized", priority * 4294967296 + call("INCR", prefix .. "pc") % 4294967296, id)
      wake_at(prefix)
    end
    emit_waiting(prefix, id)
  end

  local function continue_parent(prefix, id, at)
    if call("EXISTS", prefix .. id) == 1 and call("ZREM", prefix .. "waiting-children", id) == 1 then
      enqueue_parent(prefix, id, at)
    end
  end

  local function continue_if_done(prefix, id, at)
    if call("SCARD", prefix .. id .. ":dependencies") == 0 then continue_parent(prefix, id, at) end
  end

  -- Let the parent fail when it is claimed next.
  local function fail_parent(prefix, id, child, at)
    local parent = prefix .. id
    if call("EXISTS", parent) == 0 then return end
    local waits = call("ZREM", prefix .. "waiting-children", id) == 1
    if not waits and call("ZREM", prefix .. "delayed", id) == 1 then
      waits = true
      call("HSET", parent, "delay", 0)
    end
    if waits or not call("ZSCORE", prefix .. "failed", id) then
      call("HSET", parent, "defa", "child " .. child .. " failed")
    end
    if waits then enqueue_parent(prefix, id, at) end
  end

  local parents = {state_of = state_of}

  -- A child that has ended is to run again: its parent waits for it again.
  function parents.wait_again(child, previous)
    local parent = call("HGET", child, "parentKey")
    if not parent or parent == "" or call("EXISTS", parent) == 0 then return end
    local was_counted
    if previous == "completed" then
      was_counted = call("HDEL", parent .. ":processed", child) == 1
    else
      was_counted = call("ZREM", parent .. ":unsuccessful", child) == 1
        or (is_six(own) and call("HDEL", parent .. ":failed", child) == 1)
    end
    if was_counted then call("SADD", parent .. ":dependencies", child) end
  end

  -- All jobs of a flow have been added: continue a parent whose children had all ended before. BullMQ 6 alone leaves
  -- it until then, unless a child could not be given this parent.
  function parents.close_flow(id, at)
    if call("HDEL", PREFIX .. id, "flowAttachmentFailed") == 0 then continue_if_done(PREFIX, id, at) end
  end

  -- Note a child that completed before its parent was added.
  function parents.add_result(prefix, id, child, result, at)
    call("HSET", prefix .. id .. ":processed", child, result)
    continue_if_done(prefix, id, at)
  end

  function parents.child_completed(prefix, id, child, result, at)
    if call("SREM", prefix .. id .. ":dependencies", child) == 1 then
      parents.add_result(prefix, id, child, result, at)
    end
  end

  -- A failed child: the policy is in the child's reference to its parent.
  function parents.child_failed(prefix, id, reference, child, reason, at)
    local parent = prefix .. id
    if not (reference.fpof or reference.cpof or reference.idof or reference.rdof)
       or call("SREM", parent .. ":dependencies", child) == 0 then return end
    if reference.fpof then
      call("ZADD", parent .. ":unsuccessful", at, child)
      fail_parent(prefix, id, child, at)
      return
    end
    if reference.cpof or reference.idof then call("HSET", parent .. ":failed", child, reason) end
    if reference.cpof then
      continue_parent(prefix, id, at)
    else
      continue_if_done(prefix, id, at)
    end
  end

  -- A child is removed without having ended: a parent that waited for it alone is enqueued, or with `hard` removed
  -- too where both are in this queue. Returns whether the parent waited for it.
  function parents.detach_child(child, parent, hard)
    local text
    if not parent then
      local row = call("HMGET", child, "parentKey", "deid")
      parent, text = row[1], row[2]
      if not parent or parent == "" or call("EXISTS", parent) == 0 then return false end
    end
    if call("SREM", parent .. ":dependencies", child) == 0 then return false end
    if call("SCARD", parent .. ":dependencies") > 0 then return true end
    local prefix, id = split_key(parent)
    if call("ZREM", prefix .. "waiting-children", id) == 1 then
      if hard and prefix == PREFIX then
        parents.detach_child(parent, nil, true)
        remove_keys(parent)
        if text then call("DEL", prefix .. "de:" .. text) end
      else
        enqueue_first(prefix, id)
        if not hard then emit_waiting(prefix, id) end
      end
    end
    return true
  end

  return parents
end

local function parents_of(state)
  if not state.parents then state.parents = open_parents(state) end
  return state.parents
end
