-- The jobs that schedulers make, one at a time: each is made before the one before it runs.
--
--   repeat                 ZSET   scheduler id by the ms its next job is due
--   repeat:<id>            HASH   name, data, opts, every or pattern, tz, limit, startDate, endDate, offset, ic
--   repeat:<id>:<ms>       HASH   that job; its id is the name of its key without the prefix
-- use queue

local function whole(number) return string.format("%.0f", number) end

-- When a scheduler that runs every so many ms is due next: (ms, its offset within the interval)
local function next_every(previous, every, now, offset, start)
  local due
  if not previous then
    due = math.max(start or now, now)
  else
    due = previous + every
    -- what was missed is not made up for
    if due < now then due = math.floor(now / every) * every + every + offset end
  end
  if offset == 0 then offset = due - math.floor(due / every) * every end
  return math.floor(due), math.floor(offset)
end

-- Store the scheduler's job for `due` and queue it; its id, and its delay.
-- made: {scheduler, name, data, opts without what is known only here, the id's beginning as JSON,
--        priority, is lifo, text it stands for or false}
local function make_job(made, due, now, state)
  local id = "repeat:" .. made.scheduler .. ":" .. whole(due)
  local delay, priority = math.max(due - now, 0), made.priority
  local opts = made.opts .. ',"jobId":"' .. made.id_text .. whole(due) .. '","delay":' .. whole(delay) .. "}"
  local bonds = {"rjk", made.scheduler}
  if made.stands_for then bonds[3], bonds[4] = "deid", made.stands_for end
  call("INCR", ID)
  call("HSET", PREFIX .. id, "name", made.name, "data", made.data, "opts", opts, "timestamp", whole(now),
       "delay", whole(delay), "priority", priority, unpack(bonds))
  call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state))
  call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", made.name)
  if delay > 0 then
    delay_job(id, now + delay)
    return id, delay
  end
  if priority > 0 then
    call("ZADD", PRIORITIZED, priority_score(priority), id)
  else
    call(made.is_lifo and "RPUSH" or "LPUSH", state.target, id)
  end
  wake(is_blocked(state))
  call("XADD", EVENTS, "*", "event", "waiting", "jobId", id)
  return id, delay
end

-- The columns of `made` that come packed: [name, data, opts, id as JSON, priority, is lifo, stands for]
local function read_made(scheduler, row)
  return {scheduler = scheduler, name = row[1], data = row[2], opts = row[3], id_text = row[4],
          priority = row[5], is_lifo = row[6], stands_for = row[7]}
end
