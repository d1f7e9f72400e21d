-- Deduplication: one job for all that are added under the same deduplication id.
--
--   de:<id>  STRING  the id of that job      dn:<id>  HASH  name, data, opts, jid, pk, pd, pdk: the job after it (BullMQ 6)
-- use queue

-- Emit that job `id` is kept, and job `dropped` is not.
local function emit_deduplicated(id, text, dropped, state)
  if not is_six(state) then call("XADD", EVENTS, "*", "event", "debounced", "jobId", id, "debounceId", text) end
  call("XADD", EVENTS, "*", "event", "deduplicated", "jobId", id, "deduplicationId", text,
       "deduplicatedJobId", dropped)
end

-- Replace a delayed job by `id`; false where the existing one is not delayed any more.
local function replace_delayed(existing, id, text, state)
  if call("ZREM", DELAYED, existing) == 0 then return false end
  remove_keys(PREFIX .. existing)
  call("XADD", EVENTS, "*", "event", "removed", "jobId", existing, "prev", "delayed")
  emit_deduplicated(id, text, existing, state)
  call("DEL", PREFIX .. "dn:" .. text)
  return true
end

-- Keep a new job in dn:<deduplication id> until the active one ends (settle.lua); false where that is not active.
local function keep_next(text, existing, id, envelope, data, state)
  if not call("LPOS", ACTIVE, existing) then return false end
  local key, parent = PREFIX .. "dn:" .. text, envelope[9]
  local relations = {}
  if parent then relations = {"pk", parent[1], "pd", parent[2], "pdk", parent[1] .. ":dependencies"} end
  call("DEL", key)
  call("HSET", key, "name", envelope[2], "data", data, "opts", envelope[3], "jid", id, unpack(relations))
  call("PERSIST", PREFIX .. "de:" .. text)
  emit_deduplicated(existing, text, id, state)
  return true
end

-- Returns the id of the job that exists under this deduplication id; nil where `id` is to be added.
-- option: [deduplication id, ttl ms or false, extends, replaces, keeps the last that is added while the existing job is
--          active (BullMQ 6), reschedules the existing one (BullMQ 6), adds where there is none to replace]
local function deduplicate(option, id, envelope, data, state)
  local text, ttl, extends, replaces, keeps_last, reschedules, adds = unpack(option)
  local six = is_six(state)
  local key = PREFIX .. "de:" .. text
  local existing = call("GET", key)
  keeps_last = keeps_last and six

  -- One that keeps the last has no time to live: it would end while the job is active.
  local function hold(job)
    if ttl and not keeps_last then call("SET", key, job, "PX", ttl) else call("SET", key, job) end
  end

  if not existing then
    hold(id)
    return nil
  end
  local is_replaced = replaces and replace_delayed(existing, id, text, state)
  if six and not is_replaced then
    if call("PTTL", key) == -1 and call("EXISTS", PREFIX .. existing) == 0 then
      -- its job was lost, so nothing would end it
      call("DEL", PREFIX .. "dn:" .. text)
      hold(id)
      return nil
    end
    if keeps_last and keep_next(text, existing, id, envelope, data, state) then return existing end
  end
  if replaces then
    if not is_replaced and not adds then return existing end
    if ttl and not extends and not keeps_last then call("SET", key, id, "KEEPTTL") else hold(id) end
    return nil
  end
  if ttl and extends then hold(existing) end
  emit_deduplicated(existing, text, id, state)
  if six and reschedules and call("ZSCORE", DELAYED, existing) then
    call("HSET", PREFIX .. existing, "delay", envelope[5])
    delay_job(existing, envelope[4] + envelope[5])
  end
  return existing
end

-- A job has ended: allow others, unless a time to live says when.
local function end_deduplication(text, id)
  local key = PREFIX .. "de:" .. text
  if call("PTTL", key) == -1 and call("GET", key) == id then call("DEL", key) end
end
