-- replay: put ended jobs back to waiting, each in one step.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue   ARGV[5] 1 with all attempts anew, "" with those it has made
-- ARGV[6]  .. job ids of that queue, at most 500
-- Returns  [id, …] of the jobs for which that was done
-- use keys
-- use remove_job
-- use groups
local TOMBSTONE = ""

-- Whether it is a dead letter; its position is marked, and one pass removes all.
local marked = 0
local function mark_dead(id)
  local place = call("LPOS", DEAD, id)
  if not place then return false end
  call("LSET", DEAD, place, TOMBSTONE)
  marked = marked + 1
  return true
end

-- An id may be among the dead letters twice, and must be replayed once.
local function is_elsewhere(id, status)
  if status == "waiting" or call("SISMEMBER", ACTIVE, id) == 1 then return true end
  return (status == "failed" or status == "delayed") and call("ZSCORE", DELAYED, id) ~= false
end

local function start_anew(id, job)
  call("DEL", JOBS .. "result:" .. id, JOBS .. "progress:" .. id, JOBS .. "summary:" .. id)
  call("PERSIST", JOBS .. "data:" .. id)
  call("PERSIST", JOBS .. "fence:" .. id)
  call("PERSIST", JOBS .. "log:" .. id)
  if ARGV[5] == "" then return end
  -- all attempts anew, whatever the JSON says were made before it was written
  if job.attempt == 0 then
    call("DEL", JOBS .. "attempts:" .. id)
  else
    call("SET", JOBS .. "attempts:" .. id, integer(-job.attempt))
  end
end

local done = {}
for position = 6, #ARGV do
  local id = ARGV[position]
  local raw, job = load_job(id)
  local status = call("GET", JOBS .. "status:" .. id)
  if raw and not job.is_broken and job.queue == ARGV[4] and not is_elsewhere(id, status) then
    local was_dead = mark_dead(id)
    if was_dead or (status == "completed" and call("ZREM", ROOT .. "jobs:completed:" .. job.queue, id) == 1) then
      start_anew(id, job)
      wait_in_place(id, job)
      emit("waiting", id, job, "", "prev", was_dead and "dead" or "completed")
      done[#done + 1] = id
    end
  end
end
if marked > 0 then call("LREM", DEAD, marked, TOMBSTONE) end
return done
