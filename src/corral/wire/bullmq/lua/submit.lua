-- submit: store a batch of new jobs and queue each where its options say.
-- KEYS     keys.fixed
-- ARGV[1]  msgpack [[id or "", name, data, opts, created ms, delay ms, priority, is lifo], …]
-- Returns  [id, …]; an id that exists already is returned and its job left as it is
-- use queue
local rows = cmsgpack.unpack(ARGV[1])
local state = queue_state()
local kept = kept_events(state)
local blocked = is_blocked(state)
local number = call("INCRBY", ID, #rows) - #rows
local ids, front, back = {}, {}, {}
local claimable = false

for i, row in ipairs(rows) do
  local id, delay, priority = row[1], row[6], row[7]
  local given = id ~= ""
  if not given then id = string.format("%d", number + i) end
  local job = PREFIX .. id
  ids[i] = id
  if given and call("EXISTS", job) == 1 then
    call("XADD", EVENTS, "*", "event", "duplicated", "jobId", id)
  else
    call("HSET", job, "name", row[2], "data", row[3], "opts", row[4], "timestamp", row[5],
         "delay", delay, "priority", priority)
    call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", row[2])
    if delay > 0 then
      delay_job(id, row[5] + delay)
    else
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
  end
end

-- the two ends of the list do not meet, so each end takes its jobs in one call
if #back > 0 then call("LPUSH", state.target, unpack(back)) end
if #front > 0 then call("RPUSH", state.target, unpack(front)) end
if claimable then wake(blocked) end
call("XTRIM", EVENTS, "MAXLEN", "~", kept)
return ids
