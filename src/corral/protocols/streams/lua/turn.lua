-- turn: settle a batch of claims, then claim as many as wanted.
-- KEYS     jobs:stream jobs:events jobs:workers jobs:trip:BROKER, then hash, events and deliveries of each settled job
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] msgpack [settlement row, …] (parts/settle)
-- ARGV[7]  want   ARGV[8] number of this trip   ARGV[9] lock ms   ARGV[10] most payload bytes in one answer
-- ARGV[11] msgpack [task, …] that the worker has handlers for, or "" for all
-- Returns  [0 | code | fault text, …], [claimed row, …], reason, last id seen, [expired, over, malformed],
--          last id of jobs:parked, [task, …] of parked jobs that the worker has no handler for
-- use settle
-- use claim
local WORKERS, TRIP = KEYS[3], KEYS[4]
local TRIP_SECONDS = 3600

local codes = {}
for position, row in ipairs(cmsgpack.unpack(ARGV[6])) do codes[position] = isolated(settle, row) end
delete_entries()

local want, trip = tonumber(ARGV[7]), tonumber(ARGV[8])
local function is_given_up()
  -- the worker has given this trip up: nobody would run what it claimed
  return trip <= (tonumber(call("HGET", TRIP, "given_up") or 0) or 0)
end

if want <= 0 or is_given_up() then return {codes, {}, "satisfied", "", {0, 0, 0}, "", {}} end

-- the first write is one that a full or read-only server refuses: it would accept XREADGROUP
call("HSET", WORKERS, WORKER, NOW .. " " .. ARGV[9])
local serves
if ARGV[11] ~= "" then
  serves = {}
  for _, task in ipairs(cmsgpack.unpack(ARGV[11])) do serves[task] = true end
end
local rows, drained, skipped, others = claim(WORKER, want, tonumber(ARGV[10]), serves)
delete_entries()

local entries = {}
for position, row in ipairs(rows) do entries[position] = row[1] end
call("HSET", TRIP, "number", ARGV[8], "entries", table.concat(entries, " "))
call("EXPIRE", TRIP, TRIP_SECONDS)

local seen, woken = "", "0-0"
if drained then
  -- before 7.2 a read without entries creates no consumer, and an idle worker would not be listed
  if #rows == 0 then call("XGROUP", "CREATECONSUMER", STREAM, GROUP, WORKER) end
  for _, flat in ipairs(call("XINFO", "GROUPS", STREAM)) do
    local group = fields_of(flat)
    if group.name == GROUP then seen = group["last-delivered-id"] end
  end
  local last = call("XREVRANGE", PARKED, "+", "-", "COUNT", 1)
  if last[1] then woken = last[1][1] end
end
return {codes, rows, drained and "drained" or "satisfied", seen, skipped, woken, others}
