-- One job stands for all that are added under the same text.
-- use queue

-- Tell that `id` stands, and which other it made needless.
local function say_deduplicated(id, text, needless)
  call("XADD", EVENTS, "*", "event", "debounced", "jobId", id, "debounceId", text)
  call("XADD", EVENTS, "*", "event", "deduplicated", "jobId", id, "deduplicationId", text,
       "deduplicatedJobId", needless)
end

-- A delayed job makes way for `id`; false where the one that stands is not delayed any more.
local function make_way(standing, id, text)
  if call("ZREM", DELAYED, standing) == 0 then return false end
  remove_keys(PREFIX .. standing)
  call("XADD", EVENTS, "*", "event", "removed", "jobId", standing, "prev", "delayed")
  say_deduplicated(id, text, standing)
  return true
end

-- The id of the job that stands already; nil where `id` shall be added, and stands from now on.
-- asked: [text, ttl ms or false, extends, replaces]
local function deduplicate(asked, id)
  local text, ttl, extends, replaces = asked[1], asked[2], asked[3], asked[4]
  local key = PREFIX .. "de:" .. text
  local standing = call("GET", key)
  if not standing then
    if ttl then call("SET", key, id, "PX", ttl) else call("SET", key, id) end
    return nil
  end
  if not replaces then
    if ttl and extends then call("SET", key, standing, "PX", ttl) end
    say_deduplicated(standing, text, id)
    return standing
  end
  if not make_way(standing, id, text) then return standing end
  if not ttl then
    call("SET", key, id)
  elseif extends then
    call("SET", key, id, "PX", ttl)
  else
    call("SET", key, id, "KEEPTTL")
  end
  return nil
end

-- A job has ended: others may come, unless a time says when.
local function stop_standing(text, id)
  local key = PREFIX .. "de:" .. text
  if call("PTTL", key) == -1 and call("GET", key) == id then call("DEL", key) end
end
