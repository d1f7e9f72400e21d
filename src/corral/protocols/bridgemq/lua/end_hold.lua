-- end_hold: delete held jobs that have arrived elsewhere, or put them back where they were.
-- KEYS     .. [11] keys.fixed, then the run, the held jobs
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] drop or restore   ARGV[5…] receipts, in the order in which they were held
-- Returns  how many of them were held
-- use keys
-- use remove_job
local RUN, HELD = KEYS[FIXED + 1], KEYS[FIXED + 2]
local ended = 0

local function restore(id, place, score)
  if call("EXISTS", JOBS .. "data:" .. id, JOBS .. "status:" .. id) == 0 then return end
  if place == "waiting" then
    call("LPUSH", WAITING, id)
  elseif place == "dead" then
    call("LPUSH", DEAD, id)
  else
    call("ZADD", place == "delayed" and DELAYED or COMPLETED, score, id)
  end
end

-- the last first: each of them goes in front of those behind it
for position = #ARGV, 5, -1 do
  if call("ZREM", HELD, ARGV[position]) == 1 then
    local _, place, score, id = unpack(cmsgpack.unpack(ARGV[position]))
    if ARGV[4] == "drop" then
      local job = description(id)
      delete_job(id)
      emit("removed", id, job, "", "prev", place)
      if call("EXISTS", RUN) == 1 then call("HINCRBY", RUN, "moved", 1) end
    else
      restore(id, place, score)
    end
    ended = ended + 1
  end
end
return ended
