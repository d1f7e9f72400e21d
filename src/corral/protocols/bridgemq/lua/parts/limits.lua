-- The two limits of a job type, with what this call has claimed already.
-- use jobs
local MINUTE_S = 60
local tallies = {}

local function tally_of(kind)
  local tally = tallies[kind]
  if not tally then
    local row = call("MGET", ROOT .. "ratelimit:concurrent:" .. kind, ROOT .. "ratelimit:minute:" .. kind)
    tally = {active = tonumber(row[1] or 0) or 0, claimed = tonumber(row[2] or 0) or 0, taken = 0}
    tallies[kind] = tally
  end
  return tally
end

-- Returns nil where one more of its type may be claimed, else the limit that is reached.
local function limit_reached(job)
  if not (job.concurrent or job.per_minute) then return nil end
  local tally = tally_of(job.type)
  if job.concurrent and tally.active + tally.taken >= job.concurrent then return "concurrent" end
  if job.per_minute and tally.claimed + tally.taken >= job.per_minute then return "minute" end
  return nil
end

-- ms until this minute's counter expires
local function minute_left(kind)
  return math.max(call("PTTL", ROOT .. "ratelimit:minute:" .. kind), 1)
end

-- Every claim counts, of limited types or not: each release counts it down again.
local function write_counters()
  for kind, tally in pairs(tallies) do
    if tally.taken > 0 then
      call("INCRBY", ROOT .. "ratelimit:concurrent:" .. kind, tally.taken)
      local minute = ROOT .. "ratelimit:minute:" .. kind
      call("INCRBY", minute, tally.taken)
      -- a counter without a time to live would block its type for ever
      if call("TTL", minute) < 0 then call("EXPIRE", minute, MINUTE_S) end
      tally.active, tally.claimed, tally.taken = tally.active + tally.taken, tally.claimed + tally.taken, 0
    end
  end
end
