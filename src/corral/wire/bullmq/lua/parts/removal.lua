-- Take a job out of whatever state it is in; the state's name on the wire.
local function leave_any_state(id)
  local sets = {{COMPLETED, "completed"}, {DELAYED, "delayed"}, {FAILED, "failed"}, {PRIORITIZED, "prioritized"}}
  for _, set in ipairs(sets) do
    if call("ZREM", set[1], id) == 1 then return set[2] end
  end
  local lists = {{WAIT, "wait"}, {PAUSED, "paused"}, {ACTIVE, "active"}}
  for _, list in ipairs(lists) do
    if call("LREM", list[1], 1, id) == 1 then return list[2] end
  end
  return "unknown"
end

-- Delete a job that nobody holds; was there one?
local function remove_job(id, state)
  local previous = leave_any_state(id)
  if remove_keys(PREFIX .. id) == 0 then return false end
  call("XADD", EVENTS, "MAXLEN", "~", kept_events(state), "*", "event", "removed", "jobId", id, "prev", previous)
  return true
end
