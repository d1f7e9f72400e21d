-- What a job's end or removal means to its parent, which may live in another queue.
--
--   <parent>:dependencies  SET   keys of children that have not ended
--   <parent>:processed     HASH  key -> result of children that completed
--   <parent>:failed        HASH  key -> reason of failed children that the parent goes on without
--   <parent>:unsuccessful  ZSET  keys of failed children that fail the parent, by ms
--
-- Few jobs have relatives, so these words are made when the first such job comes.
-- use queue

-- A job's key as the prefix of its queue, and its id.
local function split_key(key)
  local id = string.match(key, ".*:(.*)")
  return string.sub(key, 1, #key - #id), id
end

local function open_family(own)
  local states = {[PREFIX] = own}

  local function state_of(prefix)
    local state = states[prefix]
    if not state then
      local row = call("HMGET", prefix .. "meta", "paused", "concurrency", "opts.maxLenEvents")
      state = {paused = row[1] ~= false, concurrency = tonumber(row[2]), kept_events = row[3],
               active = prefix .. "active", meta = prefix .. "meta", leaving = 0}
      states[prefix] = state
    end
    return state
  end

  local function wake_at(prefix)
    if not is_blocked(state_of(prefix)) then call("ZADD", prefix .. "marker", 0, "0") end
  end

  -- The next to run, whatever its priority.
  local function put_first(prefix, id)
    call("RPUSH", prefix .. (state_of(prefix).paused and "paused" or "wait"), id)
    wake_at(prefix)
  end

  local function say_waiting(prefix, id)
    call("XADD", prefix .. "events", "*", "event", "waiting", "jobId", id, "prev", "waiting-children")
  end

  -- A parent that waited for its children goes where its options say.
  local function put_in_line(prefix, id, at)
    local row = call("HMGET", prefix .. id, "priority", "delay")
    local priority, delay = tonumber(row[1]) or 0, tonumber(row[2]) or 0
    if delay > 0 then
      local due = tonumber(at) + delay
      call("ZADD", prefix .. "delayed", due * 4096, id)
      call("XADD", prefix .. "events", "*", "event", "delayed", "jobId", id, "delay", due)
      local first = call("ZRANGE", prefix .. "delayed", 0, 0, "WITHSCORES")
      call("ZADD", prefix .. "marker", tonumber(first[2]) / 4096, "1")
      return
    end
    if priority == 0 then
      put_first(prefix, id)
    else
      call("ZADD", prefix .. "prioritized", priority * 4294967296 + call("INCR", prefix .. "pc") % 4294967296, id)
      wake_at(prefix)
    end
    say_waiting(prefix, id)
  end

  local function go_on(prefix, id, at)
    if call("EXISTS", prefix .. id) == 1 and call("ZREM", prefix .. "waiting-children", id) == 1 then
      put_in_line(prefix, id, at)
    end
  end

  local function go_on_without_pending(prefix, id, at)
    if call("SCARD", prefix .. id .. ":dependencies") == 0 then go_on(prefix, id, at) end
  end

  -- The parent fails when it is claimed next.
  local function doom(prefix, id, child, at)
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
    if waits then put_in_line(prefix, id, at) end
  end

  local family = {state_of = state_of}

  -- A child that had completed before its parent came.
  function family.add_result(prefix, id, child, result, at)
    call("HSET", prefix .. id .. ":processed", child, result)
    go_on_without_pending(prefix, id, at)
  end

  function family.child_completed(prefix, id, child, result, at)
    if call("SREM", prefix .. id .. ":dependencies", child) == 1 then
      family.add_result(prefix, id, child, result, at)
    end
  end

  -- What a failed child does to its parent, the child's own policy says (in its link).
  function family.child_failed(prefix, id, link, child, reason, at)
    local parent = prefix .. id
    if not (link.fpof or link.cpof or link.idof or link.rdof)
       or call("SREM", parent .. ":dependencies", child) == 0 then return end
    if link.fpof then
      call("ZADD", parent .. ":unsuccessful", at, child)
      doom(prefix, id, child, at)
      return
    end
    if link.cpof or link.idof then call("HSET", parent .. ":failed", child, reason) end
    if link.cpof then
      go_on(prefix, id, at)
    else
      go_on_without_pending(prefix, id, at)
    end
  end

  -- A child goes without having ended: a parent that waited for it alone goes on, or goes with it where
  -- `hard` says so and both live here. Was it waited for?
  function family.forget_child(child, parent, hard)
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
        family.forget_child(parent, nil, true)
        remove_keys(parent)
        if text then call("DEL", prefix .. "de:" .. text) end
      else
        put_first(prefix, id)
        if not hard then say_waiting(prefix, id) end
      end
    end
    return true
  end

  return family
end

local function family_of(state)
  if not state.family then state.family = open_family(state) end
  return state.family
end
