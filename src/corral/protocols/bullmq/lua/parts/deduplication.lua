-- Deduplication: one job for all that are added under the same deduplication id.
-- use queue

-- Emit that job `id` is kept, and job `dropped` is not.
local function emit_deduplicated(id, text, dropped)
  call("XADD", EVENTS, "*", "event", "debounced", "jobId", id, "debounceId", text)
  call("XADD", EVENTS, "*", "event", "deduplicated", "jobId", id, "deduplicationId", text,
       "deduplicatedJobId", dropped)
end

-- Replace a delayed job by `id`; false where the existing one is not delayed any more.
local function replace_delayed(existing, id, text)
  if call("ZREM", DELAYED, existing) == 0 then return false end
  remove_keys(PREFIX .. existing)
  call("XADD", EVENTS, "*", "event", "removed", "jobId", existing, "prev", "delayed")
  emit_deduplicated(id, text, existing)
  return true
end

-- Returns the id of the job that exists under this deduplication id; nil where `id` is to be added.
-- option: [deduplication id, ttl ms or false, extends, replaces, adds where there is none to replace]
local function deduplicate(option, id)
  local text, ttl, extends, replaces, adds = unpack(option)
  local key = PREFIX .. "de:" .. text
  local existing = call("GET", key)
  if not existing then
    if ttl then call("SET", key, id, "PX", ttl) else call("SET", key, id) end
    return nil
  end
  if not replaces then
    if ttl and extends then call("SET", key, existing, "PX", ttl) end
    emit_deduplicated(existing, text, id)
    return existing
  end
  if not replace_delayed(existing, id, text) and not adds then return existing end
  if not ttl then
    call("SET", key, id)
  elseif extends then
    call("SET", key, id, "PX", ttl)
  else
    call("SET", key, id, "KEEPTTL")
  end
  return nil
end

-- A job has ended: allow others, unless a time to live says when.
local function end_deduplication(text, id)
  local key = PREFIX .. "de:" .. text
  if call("PTTL", key) == -1 and call("GET", key) == id then call("DEL", key) end
end
