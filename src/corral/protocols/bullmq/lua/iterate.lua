-- iterate: make the next job of each scheduler whose job was claimed.
-- KEYS     keys.fixed
-- ARGV[1]  now ms
-- ARGV[2]  msgpack [[scheduler id, id of the claimed job, next ms or false, every ms or false, offset ms,
--          template (parts/scheduled_jobs)], …]
-- Returns  [id or "", …]: "" where the claimed job is not its scheduler's current one, or the scheduler does not exist
-- use scheduled_jobs
local now, state = tonumber(ARGV[1]), queue_state()

local function iterate(row)
  local scheduler, claimed = row[1], row[2]
  local previous = call("ZSCORE", REPEAT, scheduler)
  -- repeated, this finds another job to be the current one and does nothing
  if not previous or claimed ~= "repeat:" .. scheduler .. ":" .. previous then return "" end
  local key = REPEAT .. ":" .. scheduler
  local kept = call("HMGET", key, "name", "data", "every", "startDate", "offset")
  local due, every = row[3], tonumber(kept[3]) or row[4]
  if every then due = next_every(tonumber(previous), every, now, tonumber(kept[5]) or row[5], nil, state) end
  if not due then return "" end
  local id = "repeat:" .. scheduler .. ":" .. whole(due)
  if call("EXISTS", PREFIX .. id) == 1 then
    call("XADD", EVENTS, "MAXLEN", "~", kept_events(state), "*", "event", "duplicated", "jobId", id)
    return ""
  end
  local template = read_template(scheduler, row[6])
  template.name = kept[1] or template.name
  template.data = kept[2] or (is_six(state) and "{}") or template.data
  call("ZADD", REPEAT, whole(due), scheduler)
  call("HINCRBY", key, "ic", 1)
  add_scheduled_job(template, due, now, state)
  if not is_six(state) then
    if template.data ~= "{}" then call("HSET", key, "data", template.data) end
    call("HSET", PREFIX .. claimed, "nrjid", id)
  end
  return id
end

local ids = {}
for i, row in ipairs(cmsgpack.unpack(ARGV[2])) do ids[i] = iterate(row) end
return ids
