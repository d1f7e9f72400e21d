-- Groups: jobs of one queue that wait in turn with those of other groups. All of these keys are added.
--
--   groups:<queue>:ring           ZSET    groups that wait, by the round in which each is served next
--   groups:<queue>:full           ZSET    groups that wait and have as many active jobs as they may, by the ms to look again
--   groups:<queue>:waiting        ZSET    ids of all jobs that wait in groups, in their order
--   groups:<queue>:of:<name>      ZSET    ids of the jobs of one group that wait, in their order
--   groups:<queue>:active:<name>  SET     ids that were claimed where groups have a concurrency; each counts while it has a lock
--   groups:<queue>:count, turn    STRING  how many jobs have entered a group, and how many claims had to choose
--
-- The group of a job is `group` in its JSON. Few queues have groups, and every function that a script makes costs time:
-- all but one are made where one is needed.
-- use jobs
local opened = {}
local function groups_of(queue)
  if opened[queue] then return opened[queue] end
  local LOOK_AGAIN_MS, KEPT_ACTIVE_S = 5000, 2592000
  local base = ROOT .. "groups:" .. queue .. ":"
  local RING, FULL, GROUPED = base .. "ring", base .. "full", base .. "waiting"
  -- of this call: active jobs of a group, whether these were compared with their locks, those that get one now, and
  -- groups known to be in the ring or full
  local counts, counted, taken, listed, groups = {}, {}, {}, {}, {}

  -- Serve a group in this round.
  local function enter_ring(name)
    local first = call("ZRANGE", RING, 0, 0, "WITHSCORES")
    call("ZADD", RING, "NX", first[2] or 0, name)
  end

  local function enter(id, name, score)
    call("ZADD", base .. "of:" .. name, score, id)
    call("ZADD", GROUPED, score, id)
    if not listed[name] then
      if not call("ZSCORE", FULL, name) then enter_ring(name) end
      listed[name] = true
    end
  end

  -- Let a job wait in its group; `is_front`: as the next of it.
  function groups.add(id, name, is_front)
    local number = call("INCR", base .. "count")
    enter(id, name, is_front and -number or number)
  end

  groups.put_back = enter

  -- Forget the ids of a group that have no lock; returns how many are left.
  local function count_locks(active)
    local ids, locks, live = call("SMEMBERS", active), {}, 0
    for i, id in ipairs(ids) do locks[i] = JOBS .. "lock:" .. id end
    in_chunks(locks, 1000, function(from, to)
      for i, lock in ipairs(call("MGET", unpack(locks, from, to))) do
        local id = ids[from + i - 1]
        if lock or taken[id] then live = live + 1 else call("SREM", active, id) end
      end
    end)
    return live
  end

  -- Whether a group has as many active jobs as it may: those that have a lock, so that a killed worker takes no place.
  local function is_full(name, limit)
    local active = base .. "active:" .. name
    if not counts[name] then counts[name] = call("SCARD", active) end
    if counts[name] >= limit and not counted[name] then
      counts[name], counted[name] = count_locks(active), true
    end
    return counts[name] >= limit
  end

  local function take_next(name, round, limit)
    local popped = call("ZPOPMIN", base .. "of:" .. name)
    if #popped == 0 then
      call("ZREM", RING, name)
      listed[name] = nil
      return nil
    end
    call("ZREM", GROUPED, popped[1])
    if call("EXISTS", base .. "of:" .. name) == 1 then
      call("ZADD", RING, round + 1, name)
    else
      call("ZREM", RING, name)
      listed[name] = nil
    end
    if limit then
      counts[name], taken[popped[1]] = counts[name] + 1, true
      call("SADD", base .. "active:" .. name, popped[1])
      call("EXPIRE", base .. "active:" .. name, KEPT_ACTIVE_S)
    end
    return popped[1], popped[2]
  end

  -- Returns up to `count` of [id, group, score], one of each group in turn.
  function groups.pop(count, limit)
    for _, name in ipairs(call("ZRANGEBYSCORE", FULL, "-inf", NOW, "LIMIT", 0, 10)) do
      call("ZREM", FULL, name)
      enter_ring(name)
    end
    local rows, visits = {}, count + 100
    while #rows < count and visits > 0 do
      local turn = call("ZRANGE", RING, 0, math.min(count - #rows, visits) - 1, "WITHSCORES")
      if #turn == 0 then break end
      for i = 1, #turn, 2 do
        local name = turn[i]
        visits = visits - 1
        if limit and is_full(name, limit) then
          call("ZREM", RING, name)
          call("ZADD", FULL, NOW + LOOK_AGAIN_MS, name)
        else
          local id, score = take_next(name, turn[i + 1], limit)
          if id then rows[#rows + 1] = {id, name, score} end
        end
      end
    end
    groups.is_cut = visits <= 0 and #rows < count -- too many were full: there may be others behind them
    return rows
  end

  -- A job is not active any more: its group may be served again.
  function groups.leave(id, name)
    if taken[id] then counts[name], taken[id] = counts[name] - 1, nil end
    call("SREM", base .. "active:" .. name, id)
    if call("ZREM", FULL, name) == 1 then enter_ring(name) end
  end

  -- Whether it waited in its group, which it does not any more.
  function groups.remove(id)
    if call("ZREM", GROUPED, id) == 0 then return false end
    local raw, job = load_job(id)
    if raw and job.group then call("ZREM", base .. "of:" .. job.group, id) end
    return true
  end

  -- How many of `count` claims are for jobs in groups, while others wait too.
  function groups.share(count) return math.floor((count + call("INCR", base .. "turn") % 2) / 2) end

  -- When a group that is full is looked at again, or nil.
  function groups.next_look()
    local first = call("ZRANGE", FULL, 0, 0, "WITHSCORES")
    return first[2] and tonumber(first[2])
  end

  opened[queue] = groups
  return groups
end

-- Let a job wait, in its group where it has one, else as its priority says: higher ones are earlier here, and from 7 on
-- a job goes to the front. `is_next`: as the next of its group.
local function wait_in_place(id, job, is_next)
  if job.group then
    groups_of(job.queue).add(id, job.group, is_next)
  else
    call(job.priority >= FRONT_FROM and "LPUSH" or "RPUSH", WAITING, id)
  end
  call("SET", JOBS .. "status:" .. id, "waiting")
end
