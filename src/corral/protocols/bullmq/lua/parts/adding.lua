-- Add new jobs: store each, and queue it where its options say. A job comes as its data and an envelope, which
-- many jobs may share:
-- [id or "", name, opts, created ms, delay ms, priority, is lifo
--  and, only of jobs that are bound to others,
--  deduplication [text, ttl ms or false, extends, replaces] or false,
--  parent [key, link as JSON, prefix of its queue, id] or false, is a parent itself, repeat key or false]
-- use placing
-- use deduplication
-- use family

-- The words for one batch.
local function adding(state)
  local place, push, close_places = placing(state)
  local is_used = false

  -- A job that is there already gets this parent; its id, or the code that says why not.
  local function bind(id, job, parent, at)
    local existing = call("HGET", job, "parentKey")
    if existing and existing ~= parent[1] then
      return call("EXISTS", existing) == 1 and -7 or id
    end
    if call("ZSCORE", COMPLETED, id) then
      push() -- the parent goes in front of those that were added before
      local result = call("HGET", job, "returnvalue") or "null"
      family_of(state).add_result(parent[3], parent[4], job, result, at)
    else
      call("SADD", parent[1] .. ":dependencies", job)
    end
    call("HSET", job, "parentKey", parent[1], "parent", parent[2])
    return id
  end

  local function store(envelope, data, id, job)
    local name, duplicates, parent, repeats = envelope[2], envelope[8], envelope[9], envelope[11]
    local bonds = {}
    if duplicates then bonds = {"deid", duplicates[1]} end
    if parent then
      bonds[#bonds + 1], bonds[#bonds + 2] = "parentKey", parent[1]
      bonds[#bonds + 1], bonds[#bonds + 2] = "parent", parent[2]
      call("SADD", parent[1] .. ":dependencies", job)
    end
    if repeats then bonds[#bonds + 1], bonds[#bonds + 2] = "rjk", repeats end
    call("HSET", job, "name", name, "data", data, "opts", envelope[3], "timestamp", envelope[4],
         "delay", envelope[5], "priority", envelope[6], unpack(bonds))
    call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", name)
  end

  local function queue(envelope, id)
    if envelope[10] then
      call("ZADD", WAITING_CHILDREN, envelope[4], id)
      call("XADD", EVENTS, "*", "event", "waiting-children", "jobId", id)
    else
      place(id, envelope)
    end
  end

  -- The job's id, and whether it was there already; or the code that says why it was not added.
  local function add(envelope, data)
    local id, parent = envelope[1], envelope[9]
    local given = id ~= ""
    if parent and call("EXISTS", parent[1]) == 0 then return -5, false end
    is_used = true
    local count = call("INCR", ID) -- a job that is refused for its parent takes no number
    if not given then id = string.format("%d", count) end
    local job = PREFIX .. id
    if given and call("EXISTS", job) == 1 then
      local bound = parent and bind(id, job, parent, envelope[4]) or id
      if bound == -7 then return bound, false end
      call("XADD", EVENTS, "*", "event", "duplicated", "jobId", id)
      return bound, true
    end
    local standing = envelope[8] and deduplicate(envelope[8], id)
    if standing then return standing, true end
    store(envelope, data, id, job)
    queue(envelope, id)
    return id, false
  end

  local function close()
    if is_used then close_places() end
  end

  return add, close
end
