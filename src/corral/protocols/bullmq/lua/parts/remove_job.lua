-- Delete jobs in any state, with their children if wanted; children may be in other queues.
-- use queue
-- use parents

-- Whether it waited in its group, which it does not any more.
local function leave_group(prefix, id)
  if call("ZREM", prefix .. "grouped", id) == 0 then return false end
  local name = call("HGET", prefix .. id, "group")
  if name then call("ZREM", prefix .. "group:" .. name, id) end
  return true
end

local function remove_from_state(prefix, id)
  for _, name in ipairs({"completed", "waiting-children", "delayed", "failed", "prioritized"}) do
    if call("ZREM", prefix .. name, id) == 1 then return name end
  end
  if leave_group(prefix, id) then return "wait" end
  for _, name in ipairs({"wait", "paused", "active"}) do
    if call("LREM", prefix .. name, 1, id) == 1 then return name end
  end
  return "unknown"
end

-- A deduplicated job is removed: allow others.
local function release_deduplication(prefix, id)
  local text = call("HGET", prefix .. id, "deid")
  if text and call("GET", prefix .. "de:" .. text) == id then
    call("DEL", prefix .. "de:" .. text, prefix .. "dn:" .. text)
  end
end

-- Whether this is its scheduler's next job, without which the scheduler would stop.
local function is_next_of_scheduler(id)
  local scheduler = call("HGET", PREFIX .. id, "rjk")
  local due = scheduler and call("ZSCORE", REPEAT, scheduler)
  return due and id == "repeat:" .. scheduler .. ":" .. due
end

-- Whether this job, or a child of it that has not ended, is locked.
local function is_locked(prefix, id, with_children)
  if call("EXISTS", prefix .. id .. ":lock") == 1 then return true end
  if with_children then
    for _, child in ipairs(call("SMEMBERS", prefix .. id .. ":dependencies")) do
      local child_prefix, child_id = split_key(child)
      if is_locked(child_prefix, child_id, true) then return true end
    end
  end
  return false
end

local remove_children

-- Delete a job; returns whether it existed. how: {children = with them, is_sparing = not if locked or failed}
local function remove_job(prefix, id, state, how, parent)
  local job, parents = prefix .. id, parents_of(state)
  if how.is_sparing and (is_locked(prefix, id) or call("ZSCORE", prefix .. "failed", id)) then return false end
  parents.detach_child(job, parent)
  if how.children then remove_children(job, state, how) end
  local previous = remove_from_state(prefix, id)
  release_deduplication(prefix, id)
  if remove_keys(job) == 0 then return false end
  call("XADD", prefix .. "events", "MAXLEN", "~", kept_events(parents.state_of(prefix)), "*", "event", "removed",
       "jobId", id, "prev", previous)
  return true
end

remove_children = function(job, state, how)
  local function remove(children)
    for _, child in ipairs(children) do
      local prefix, id = split_key(child)
      remove_job(prefix, id, state, how, job)
    end
  end
  if not how.is_sparing then
    remove(call("HKEYS", job .. ":processed"))
    remove(call("HKEYS", job .. ":failed"))
    remove(call("ZRANGE", job .. ":unsuccessful", 0, -1))
  end
  remove(call("SMEMBERS", job .. ":dependencies"))
end

-- Returns 1 removed, 0 it or a child of it is locked, -1 it does not exist, -8 it is its scheduler's next job
local function remove_unlocked(id, state, with_children)
  if is_next_of_scheduler(id) then return -8 end
  if is_locked(PREFIX, id, with_children) then return 0 end
  return remove_job(PREFIX, id, state, {children = with_children}) and 1 or -1
end
