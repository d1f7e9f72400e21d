-- end_hold: delete held jobs that have arrived elsewhere, or put them back where they were.
-- KEYS     keys.fixed, then the run, the held jobs
-- ARGV[1]  drop or restore   ARGV[2…] receipts, in the order in which they were held
-- Returns  how many of them were held
-- use remove_job
local RUN, HELD = KEYS[FIXED + 1], KEYS[FIXED + 2]
local state, ended = queue_state(), 0

local function drop(id, place)
  release_deduplication(PREFIX, id)
  remove_keys(PREFIX .. id)
  call("XADD", EVENTS, "*", "event", "removed", "jobId", id, "prev", place)
  if call("EXISTS", RUN) == 1 then call("HINCRBY", RUN, "moved", 1) end
end

local function restore(id, place, score)
  if call("EXISTS", PREFIX .. id) == 0 then return end
  if place == "wait" then
    call("RPUSH", state.target, id)
    wake(is_blocked(state))
  else
    call("ZADD", PREFIX .. place, score, id)
    if place == "delayed" then wake_when_due() end
    if place == "prioritized" then wake(is_blocked(state)) end
  end
end

-- the last first: each of them goes in front of those behind it
for position = #ARGV, 2, -1 do
  if call("ZREM", HELD, ARGV[position]) == 1 then
    local _, place, score, id = unpack(cmsgpack.unpack(ARGV[position]))
    if ARGV[1] == "drop" then drop(id, place) else restore(id, place, score) end
    ended = ended + 1
  end
end
call("XTRIM", EVENTS, "MAXLEN", "~", kept_events(state))
return ended
