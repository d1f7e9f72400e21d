-- Add new jobs: store each, and queue it where its options say. A row is
-- [id or "", name, data, opts, created ms, delay ms, priority, is lifo
--  and, only of jobs that are bound to others,
--  deduplication [text, ttl ms or false, extends, replaces] or false,
--  parent [key, link as JSON, prefix of its queue, id] or false, is a parent itself, repeat key or false]
-- use queue
-- use deduplication
-- use family

-- The words for one batch; `number` is the last id given out before it, or false where each asks for its own.
local function adding(state, number)
  local blocked = is_blocked(state)
  local front, back = {}, {}
  local claimable, is_used = false, false

  -- the two ends of the list do not meet, so each end takes its jobs in one call
  local function push()
    if #back > 0 then call("LPUSH", state.target, unpack(back)) end
    if #front > 0 then call("RPUSH", state.target, unpack(front)) end
    front, back = {}, {}
  end

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

  local function store(row, id, job)
    if row[9] == nil then
      call("HSET", job, "name", row[2], "data", row[3], "opts", row[4], "timestamp", row[5],
           "delay", row[6], "priority", row[7])
    else
      local bonds = {}
      if row[9] then bonds = {"deid", row[9][1]} end
      if row[10] then
        bonds[#bonds + 1], bonds[#bonds + 2] = "parentKey", row[10][1]
        bonds[#bonds + 1], bonds[#bonds + 2] = "parent", row[10][2]
        call("SADD", row[10][1] .. ":dependencies", job)
      end
      if row[12] then bonds[#bonds + 1], bonds[#bonds + 2] = "rjk", row[12] end
      call("HSET", job, "name", row[2], "data", row[3], "opts", row[4], "timestamp", row[5],
           "delay", row[6], "priority", row[7], unpack(bonds))
    end
    call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", row[2])
  end

  local function queue(row, id)
    local delay, priority = row[6], row[7]
    if row[11] then
      call("ZADD", WAITING_CHILDREN, row[5], id)
      call("XADD", EVENTS, "*", "event", "waiting-children", "jobId", id)
      return
    end
    if delay > 0 then
      delay_job(id, row[5] + delay)
      return
    end
    claimable = true
    if priority > 0 then
      call("ZADD", PRIORITIZED, priority_score(priority), id)
    elseif row[8] then
      front[#front + 1] = id
    else
      back[#back + 1] = id
    end
    call("XADD", EVENTS, "*", "event", "waiting", "jobId", id)
  end

  local function add(i, row)
    local id = row[1]
    local given = id ~= ""
    if row[10] and call("EXISTS", row[10][1]) == 0 then return -5 end
    is_used = true
    local count = number and number + i or call("INCR", ID)
    if not given then id = string.format("%d", count) end
    local job = PREFIX .. id
    if given and call("EXISTS", job) == 1 then
      local bound = row[10] and bind(id, job, row[10], row[5]) or id
      if bound ~= -7 then call("XADD", EVENTS, "*", "event", "duplicated", "jobId", id) end
      return bound
    end
    local standing = row[9] and deduplicate(row[9], id)
    if standing then return standing end
    store(row, id, job)
    queue(row, id)
    return id
  end

  -- All have been added: let them be seen.
  local function close()
    push()
    if claimable then wake(blocked) end
    if is_used then call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state)) end
  end

  return add, close
end
