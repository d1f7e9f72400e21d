-- Delete jobs wherever they are, and with them their children where asked; children may live in other queues.
-- use queue
-- use family

local function leave_any_state(prefix, id)
  for _, name in ipairs({"completed", "waiting-children", "delayed", "failed", "prioritized"}) do
    if call("ZREM", prefix .. name, id) == 1 then return name end
  end
  for _, name in ipairs({"wait", "paused", "active"}) do
    if call("LREM", prefix .. name, 1, id) == 1 then return name end
  end
  return "unknown"
end

-- A job that stood for others goes: they may come.
local function make_protocol(prefix, id)
  local text = call("HGET", prefix .. id, "deid")
  if text and call("GET", prefix .. "de:" .. text) == id then call("DEL", prefix .. "de:" .. text) end
end

-- Is this the job that its scheduler waits for? Without it the scheduler would stand still.
local function is_next_of_scheduler(id)
  local scheduler = call("HGET", PREFIX .. id, "rjk")
  local due = scheduler and call("ZSCORE", REPEAT, scheduler)
  return due and id == "repeat:" .. scheduler .. ":" .. due
end

-- Does somebody hold this job, or a child of it that has not ended?
local function is_held(prefix, id, with_children)
  if call("EXISTS", prefix .. id .. ":lock") == 1 then return true end
  if with_children then
    for _, child in ipairs(call("SMEMBERS", prefix .. id .. ":dependencies")) do
      local child_prefix, child_id = split_key(child)
      if is_held(child_prefix, child_id, true) then return true end
    end
  end
  return false
end

local remove_children

-- Delete a job; was there one? how: {children = with them, is_sparing = not what is held or has failed}
local function remove_job(prefix, id, state, how, parent)
  local job, family = prefix .. id, family_of(state)
  if how.is_sparing and (is_held(prefix, id) or call("ZSCORE", prefix .. "failed", id)) then return false end
  family.forget_child(job, parent)
  if how.children then remove_children(job, state, how) end
  local previous = leave_any_state(prefix, id)
  make_protocol(prefix, id)
  if remove_keys(job) == 0 then return false end
  call("XADD", prefix .. "events", "MAXLEN", "~", kept_events(family.state_of(prefix)), "*", "event", "removed",
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

-- 1 where it was removed, 0 somebody holds it or a child of it, -1 it is not there, -8 its scheduler waits for it
local function remove_free(id, state, with_children)
  if is_next_of_scheduler(id) then return -8 end
  if is_held(PREFIX, id, with_children) then return 0 end
  return remove_job(PREFIX, id, state, {children = with_children}) and 1 or -1
end
