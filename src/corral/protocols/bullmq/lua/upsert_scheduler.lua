-- upsert_scheduler: add a scheduler, or change one; its next job is made anew.
-- KEYS     keys.fixed
-- ARGV[1]  scheduler id   ARGV[2] now ms   ARGV[3] next ms or "" where it runs every so many
-- ARGV[4]  every ms or ""   ARGV[5] start ms or ""
-- ARGV[6]  msgpack [field, value, …] of its hash   ARGV[7] msgpack template (parts/scheduled_jobs)
-- Returns  [id, delay ms] of the next job, or -10 that job exists and cannot be replaced, -11 the one after it too
-- use scheduled_jobs
-- use remove_job
local scheduler, now, every = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local state, key = queue_state(), REPEAT .. ":" .. ARGV[1]
kept_events(state)

-- Delete the job that was made for `at`, if it has not begun; returns whether it was deleted.
local function delete_next(at)
  local id = "repeat:" .. scheduler .. ":" .. at
  local job = PREFIX .. id
  if call("EXISTS", job) == 0 then return false end
  if call("ZREM", DELAYED, id) == 0 and call("ZREM", PRIORITIZED, id) == 0
     and call("LREM", state.target, 1, id) == 0 then return false end
  parents_of(state).detach_child(job, nil, true)
  release_deduplication(PREFIX, id)
  remove_keys(job)
  return true
end

local previous = call("ZSCORE", REPEAT, scheduler)
local due, offset = tonumber(ARGV[3]), 0
if every then due, offset = next_every(tonumber(previous), every, now, 0, tonumber(ARGV[5])) end
if previous and delete_next(previous) then
  due, offset = tonumber(previous), nil
end

local function is_taken(at) return call("EXISTS", key .. ":" .. whole(at)) == 1 end
if is_taken(due) then
  if not every then return -10 end
  if is_taken(due + every) then return -11 end
  due = due + every
end

local kept = call("HMGET", key, "offset", "ic")
local fields = cmsgpack.unpack(ARGV[6])
offset = offset and whole(offset) or kept[1]
if offset then
  fields[#fields + 1], fields[#fields + 2] = "offset", offset
end
fields[#fields + 1], fields[#fields + 2] = "ic", kept[2] or 1
call("DEL", key)
call("HSET", key, unpack(fields))
call("ZADD", REPEAT, whole(due), scheduler)
return {add_scheduled_job(read_template(scheduler, cmsgpack.unpack(ARGV[7])), due, now, state)}
