-- upsert_scheduler: add a scheduler, or change one; its next job is made anew.
-- KEYS     keys.fixed
-- ARGV[1]  scheduler id   ARGV[2] now ms   ARGV[3] next ms or "" where it runs every so many
-- ARGV[4]  every ms or ""   ARGV[5] start ms or ""
-- ARGV[6]  msgpack [field, value, …] of its hash   ARGV[7] msgpack template (parts/scheduled_jobs)
-- ARGV[8]  offset ms within the interval, or 0
-- Returns  [id, delay ms] of the next job, or -10 that job exists and cannot be replaced, -11 those after it too
-- use scheduled_jobs
-- use remove_job
local scheduler, now, every = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local state, key = queue_state(), REPEAT .. ":" .. ARGV[1]
local six = is_six(state)
local given_offset = six and tonumber(ARGV[8]) or 0
-- jobs of an earlier scheduler of this id may have several of the next times
local MOST_TAKEN = six and 32 or 1
kept_events(state)

-- Delete the job that was made for `at`, if it has not begun; returns whether it was deleted.
local function delete_next(at)
  local id = "repeat:" .. scheduler .. ":" .. at
  local job = PREFIX .. id
  if call("EXISTS", job) == 0 then return false end
  if call("ZREM", DELAYED, id) == 0 and call("ZREM", PRIORITIZED, id) == 0
     and call("LREM", state.paused and PAUSED or WAIT, 1, id) == 0 then return false end
  parents_of(state).detach_child(job, nil, true)
  release_deduplication(PREFIX, id)
  remove_keys(job)
  return true
end

local previous = call("ZSCORE", REPEAT, scheduler)
local due, offset = tonumber(ARGV[3]), 0
local is_same = true -- whether the interval stays
if every then
  is_same = not (six and previous and tonumber(call("HGET", key, "every")) ~= every)
  due, offset = next_every(is_same and tonumber(previous) or nil, every, now, given_offset, tonumber(ARGV[5]), state)
end
local is_deleted = previous and delete_next(previous)
if is_deleted then
  if not six or (every and is_same) then due = tonumber(previous) end
  offset = six and given_offset > 0 and given_offset or nil
end

local function is_taken(at) return call("EXISTS", key .. ":" .. whole(at)) == 1 end
if is_taken(due) then
  if every then
    local count = 0
    repeat
      due, count = due + every, count + 1
    until count == MOST_TAKEN or not is_taken(due)
    if is_taken(due) then return -11 end
  elseif not (six and is_deleted) then
    return -10
  end
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
