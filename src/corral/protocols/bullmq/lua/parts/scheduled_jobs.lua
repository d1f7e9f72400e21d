-- The jobs of schedulers, one at a time: each is made before the one before it runs.
--
--   repeat                 ZSET   scheduler id by the ms its next job is due
--   repeat:<id>            HASH   name, data, opts, every or pattern, tz, limit, startDate, endDate, offset, ic
--   repeat:<id>:<ms>       HASH   that job; its id is the name of its key without the prefix
-- use queue

local function whole(number) return string.format("%.0f", number) end

-- Returns when a scheduler with an interval is due next, and its offset within the interval.
local function next_every(previous, every, now, offset, start, state)
  local due = previous and previous + every or math.max(start or now, now)
  -- missed runs are not made up for
  local is_late = previous and due < now
  if is_six(state) and (is_late or (not previous and not start and offset > 0)) then
    due = math.floor(now / every) * every + offset
    if due <= now then due = due + every end
  elseif is_late then
    due = math.floor(now / every) * every + every + offset
  end
  if offset == 0 then offset = due - math.floor(due / every) * every end
  return math.floor(due), math.floor(offset)
end

-- Store the scheduler's job for `due` and enqueue it; returns its id and its delay.
-- template: {scheduler, name, data, opts without id and delay, id_prefix as JSON, priority, is_lifo,
--            deduplication_id or false, opts_with_offset: the same with that of its interval, or false}
local function add_scheduled_job(template, due, now, state)
  local id = "repeat:" .. template.scheduler .. ":" .. whole(due)
  local delay, priority = math.max(due - now, 0), template.priority
  local opts = is_six(state) and template.opts_with_offset or template.opts
  opts = opts .. ',"jobId":"' .. template.id_prefix .. whole(due) .. '","delay":' .. whole(delay) .. "}"
  local relations = {"rjk", template.scheduler}
  if template.deduplication_id then relations[3], relations[4] = "deid", template.deduplication_id end
  call("INCR", ID)
  call("HSET", PREFIX .. id, "name", template.name, "data", template.data, "opts", opts, "timestamp", whole(now),
       "delay", whole(delay), "priority", priority, unpack(relations))
  call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state))
  call("XADD", EVENTS, "*", "event", "added", "jobId", id, "name", template.name)
  if delay > 0 then
    delay_job(id, now + delay)
    return id, delay
  end
  if priority > 0 then
    call("ZADD", PRIORITIZED, priority_score(priority), id)
  else
    call(template.is_lifo and "RPUSH" or "LPUSH", state.target, id)
  end
  wake(is_blocked(state))
  call("XADD", EVENTS, "*", "event", "waiting", "jobId", id)
  return id, delay
end

-- The columns of a template as they come packed.
local function read_template(scheduler, row)
  return {scheduler = scheduler, name = row[1], data = row[2], opts = row[3], id_prefix = row[4],
          priority = row[5], is_lifo = row[6], deduplication_id = row[7], opts_with_offset = row[8]}
end
