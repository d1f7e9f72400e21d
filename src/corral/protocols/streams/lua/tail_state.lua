-- tail_state: a job's status and the extent of its events, at one moment.
-- KEYS     hash and events of the job
-- Returns  status, owner, first id, last id, type of the last event, entries kept, entries ever added;
--          "" and -1 where there is none, or the server does not know
local call = redis.call
local known = call("HMGET", KEYS[1], "status", "client")
local events = {first = "", last = "", type = "", kept = 0, added = -1}
if call("EXISTS", KEYS[2]) == 1 then
  local flat, info = call("XINFO", "STREAM", KEYS[2]), {}
  for i = 1, #flat, 2 do info[flat[i]] = flat[i + 1] end
  events.kept, events.added = info.length, info["entries-added"] or -1
  local first, last = info["first-entry"], info["last-entry"]
  if first then
    events.first, events.last = first[1], last[1]
    for i = 1, #last[2], 2 do
      if last[2][i] == "type" then events.type = last[2][i + 1] end
    end
  end
end
-- a hash that a foreign client left without a status is a job all the same
local status = known[1] or call("EXISTS", KEYS[1]) == 1 and "unknown" or ""
return {status, known[2] or "", events.first, events.last, events.type, events.kept, events.added}
