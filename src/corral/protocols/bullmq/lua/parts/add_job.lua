-- Add new jobs: store each, and enqueue it as its options say. A job comes as its data and an envelope, which
-- many jobs may share:
-- [id or "", name, opts, created ms, delay ms, priority, is lifo
--  and, only of jobs with relations,
--  deduplication (parts/deduplication) or false,
--  parent [key, reference as JSON, prefix of its queue, id] or false, has children, repeat key or false,
--  field of its data that takes its child's result ("": all its data) or false, group or nil]
-- use enqueue
-- use deduplication
-- use parents
-- use groups

-- The functions for one batch.
local function adding(state)
  local enqueue, push, close_lists = enqueuing(state)
  local is_used, has_grouped = false, false

  -- Give an existing job this parent; returns its id, or the code for why not.
  local function set_parent(id, job, parent, at, is_flow)
    local existing, is_late = call("HGET", job, "parentKey"), is_flow and is_six(state)
    if existing and existing ~= parent[1] then
      if call("EXISTS", existing) == 1 then
        if is_late then call("HSET", parent[1], "flowAttachmentFailed", 1) end
        return -7
      end
      if not is_six(state) then return id end
    end
    if call("ZSCORE", COMPLETED, id) then
      local result = call("HGET", job, "returnvalue") or "null"
      if is_late then
        call("HSET", parent[1] .. ":processed", job, result) -- parents.close_flow does the rest
      else
        push() -- the parent goes in front of the jobs added before
        parents_of(state).add_result(parent[3], parent[4], job, result, at)
      end
    else
      call("SADD", parent[1] .. ":dependencies", job)
    end
    call("HSET", job, "parentKey", parent[1], "parent", parent[2])
    return id
  end

  local function store(envelope, data, id, job)
    local name, duplicates, parent, repeats = envelope[2], envelope[8], envelope[9], envelope[11]
    local relations = {}
    if duplicates then relations = {"deid", duplicates[1]} end
    if parent then
      relations[#relations + 1], relations[#relations + 2] = "parentKey", parent[1]
      relations[#relations + 1], relations[#relations + 2] = "parent", parent[2]
      call("SADD", parent[1] .. ":dependencies", job)
    end
    if envelope[13] then relations[#relations + 1], relations[#relations + 2] = "group", envelope[13] end
    if repeats then relations[#relations + 1], relations[#relations + 2] = "rjk", repeats end
    if envelope[12] then relations[#relations + 1], relations[#relations + 2] = "chained", envelope[12] end
    call("HSET", job, "name", name, "data", data, "opts", envelope[3], "timestamp", envelope[4],
         "delay", envelope[5], "priority", envelope[6], unpack(relations))
    call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", name)
  end

  local function enqueue_new(envelope, id)
    if envelope[10] then
      call("ZADD", WAITING_CHILDREN, envelope[4], id)
      call("XADD", EVENTS, "*", "event", "waiting-children", "jobId", id)
    elseif envelope[13] and envelope[5] == 0 then
      groups_of(state).add(id, envelope[13])
      call("XADD", EVENTS, "*", "event", "waiting", "jobId", id)
      has_grouped = true
    else
      if envelope[13] then call("HINCRBY", META, "groups", 0) end -- from now on the queue has groups
      enqueue(id, envelope)
    end
  end

  -- Returns the job's id and whether it existed, or the code for why it was not added.
  local function add(envelope, data)
    local id, parent = envelope[1], envelope[9]
    local is_requested = id ~= ""
    if parent and call("EXISTS", parent[1]) == 0 then return -5, false end
    is_used = true
    local count = call("INCR", ID) -- a job refused for its parent takes no number
    if not is_requested then id = string.format("%d", count) end
    local job = PREFIX .. id
    if is_requested and call("EXISTS", job) == 1 then
      local answer = parent and set_parent(id, job, parent, envelope[4], envelope[10] ~= nil) or id
      if answer == -7 then return answer, false end
      call("XADD", EVENTS, "*", "event", "duplicated", "jobId", id)
      return answer, true
    end
    local existing = envelope[8] and deduplicate(envelope[8], id, envelope, data, state)
    if existing then return existing, true end
    store(envelope, data, id, job)
    enqueue_new(envelope, id)
    return id, false
  end

  local function close()
    if is_used then close_lists() end
    if has_grouped then wake(is_blocked(state)) end
  end

  return add, close
end
