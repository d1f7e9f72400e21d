-- Groups: jobs that wait in turn with those of other groups. All of these keys are added; no other client reads them.
--
--   groups               ZSET  groups that wait, by the round in which each is served next
--   groups:full          ZSET  groups that wait and have as many active jobs as they may, by the ms to look again
--   grouped              ZSET  ids of all jobs that wait in groups, in their order
--   group:<name>         ZSET  ids of the jobs of one group that wait, in their order
--   group:<name>:active  SET   ids that were claimed where groups have a concurrency; each counts while it has a lock
--
-- The group of a job is the field `group` of its hash; `groups` in meta counts the jobs that have entered a group.
-- Few queues have groups, and every function that a script makes costs time: all but one are made where one is needed.
-- use queue
local function groups_of(state)
  if state.open_groups then return state.open_groups end
  local LOOK_AGAIN_MS, KEPT_ACTIVE_S = 5000, 2592000
  local RING, FULL, GROUPED = PREFIX .. "groups", PREFIX .. "groups:full", PREFIX .. "grouped"
  -- of this call: active jobs of a group, whether these were compared with their locks, those that get one now, and
  -- groups known to be in the ring or full
  local counts, counted, taken, listed, groups = {}, {}, {}, {}, {}

  -- Serve a group in this round.
  local function enter_ring(name)
    local first = call("ZRANGE", RING, 0, 0, "WITHSCORES")
    call("ZADD", RING, "NX", first[2] or 0, name)
  end

  local function enter(id, name, score)
    call("ZADD", PREFIX .. "group:" .. name, score, id)
    call("ZADD", GROUPED, score, id)
    if not listed[name] then
      if not call("ZSCORE", FULL, name) then enter_ring(name) end
      listed[name] = true
    end
  end

  -- Let a job wait in its group; `is_front`: as the next of it.
  function groups.add(id, name, is_front)
    local number = call("HINCRBY", META, "groups", 1)
    enter(id, name, is_front and -number or number)
  end

  -- Let a job that was just taken wait where it did.
  function groups.put_back(id, name, score)
    enter(id, name, score)
    if counts[name] then
      counts[name], taken[id] = counts[name] - 1, nil
      call("SREM", PREFIX .. "group:" .. name .. ":active", id)
    end
  end

  -- Forget the ids of a group that have no lock; returns how many are left.
  local function count_locks(active)
    local ids, locks, live = call("SMEMBERS", active), {}, 0
    for i, id in ipairs(ids) do locks[i] = PREFIX .. id .. ":lock" end
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
    local active = PREFIX .. "group:" .. name .. ":active"
    if not counts[name] then counts[name] = call("SCARD", active) end
    if counts[name] >= limit and not counted[name] then
      counts[name], counted[name] = count_locks(active), true
    end
    return counts[name] >= limit
  end

  local function take_next(name, round, limit)
    local group = PREFIX .. "group:" .. name
    local popped = call("ZPOPMIN", group)
    if #popped == 0 then
      call("ZREM", RING, name)
      listed[name] = nil
      return nil
    end
    call("ZREM", GROUPED, popped[1])
    if call("EXISTS", group) == 1 then
      call("ZADD", RING, round + 1, name)
    else
      call("ZREM", RING, name)
      listed[name] = nil
    end
    if limit then
      counts[name], taken[popped[1]] = counts[name] + 1, true
      call("SADD", group .. ":active", popped[1])
      call("EXPIRE", group .. ":active", KEPT_ACTIVE_S)
    end
    return popped[1], popped[2]
  end

  -- Take up to `count` ids, one of each group in turn; adds them to `ids`, and [group, score] of each to `places`.
  function groups.pop(count, limit, now, ids, places)
    for _, name in ipairs(call("ZRANGEBYSCORE", FULL, "-inf", now, "LIMIT", 0, 10)) do
      call("ZREM", FULL, name)
      enter_ring(name)
    end
    local wanted, visits = #ids + count, count + 100
    while #ids < wanted and visits > 0 do
      local turn = call("ZRANGE", RING, 0, math.min(wanted - #ids, visits) - 1, "WITHSCORES")
      if #turn == 0 then break end
      for i = 1, #turn, 2 do
        local name = turn[i]
        visits = visits - 1
        if limit and is_full(name, limit) then
          call("ZREM", RING, name)
          call("ZADD", FULL, now + LOOK_AGAIN_MS, name)
        else
          local id, score = take_next(name, turn[i + 1], limit)
          if id then
            ids[#ids + 1] = id
            places[#ids] = {name, score}
          end
        end
      end
    end
    groups.is_cut = visits <= 0 and #ids < wanted -- too many were full: there may be others behind them
  end

  -- A job is not active any more: its group may be served again.
  function groups.leave(id, job)
    local name = call("HGET", job, "group")
    if not name then return end
    call("SREM", PREFIX .. "group:" .. name .. ":active", id)
    if call("ZREM", FULL, name) == 1 then
      enter_ring(name)
      wake(is_blocked(state))
    end
  end

  -- When a group that is full is looked at again, or 0.
  function groups.next_look()
    local first = call("ZRANGE", FULL, 0, 0, "WITHSCORES")
    return first[2] and tonumber(first[2]) or 0
  end

  -- Whether no job waits in a group.
  function groups.are_empty() return call("EXISTS", GROUPED) == 0 end

  state.open_groups = groups
  return groups
end
