-- turn: settle a batch of claims, then claim as many as wanted.
-- KEYS     .. [11] keys.fixed, then lock and fence of each settled job, then trips:BROKER
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue   ARGV[5] msgpack [settlement row, …] (parts/settle)
-- ARGV[6]  want   ARGV[7] number of this trip   ARGV[8] lock ms   ARGV[9] heartbeat ms   ARGV[10] metadata, or "" between two beats
-- ARGV[11] msgpack [stack, capabilities, region] of the worker   ARGV[12] cursor (parts/scan), or ""
-- ARGV[13] result s   ARGV[14] jobs of others to look at, at the head and behind the cursor
-- ARGV[15] msgpack [type, …] that the worker has handlers for, or "" for all   ARGV[16] ms for which others are left alone
-- ARGV[17] active jobs of a group or ""
-- Returns  [0 | code | error text, …], [claimed row, …], reason, until ms or 0, cursor, empty | more | others | groups,
--          [type, …] of waiting jobs that the worker has no handler for
--          a claimed row is [id, JSON, attempts since, fence, failure]
-- use keys
-- use settle
-- use promote_due
-- use heartbeat
-- use scan
local PROMOTED, TRIP_S = 200, 3600
local queue, rows = ARGV[4], cmsgpack.unpack(ARGV[5])
local want, trip, result_s = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[13])
local TRIP = KEYS[FIXED + 2 * #rows + 1]

local codes = settle_all(rows, queue, result_s)

local function is_given_up()
  -- the worker has given this trip up: nobody would run what it claimed
  return trip <= (tonumber(call("HGET", TRIP, "given_up") or 0) or 0)
end

local function earliest(set)
  local first = call("ZRANGE", set, 0, 0, "WITHSCORES")
  local at = first[2] and tonumber(first[2])
  return at and at < 1e15 and at or nil
end

-- When a delayed job or a schedule is due next, or 0.
local function next_due()
  local delayed, cron = earliest(DELAYED), earliest(CRON)
  local due = delayed and cron and math.min(delayed, cron) or delayed or cron
  return due and math.ceil(due) or 0
end

local function answer(claims, why, due, cursor, mark, unhandled)
  return {codes, claims, why, integer(due), cursor, mark, unhandled or {}}
end

if want <= 0 or is_given_up() then return answer({}, "satisfied", 0, ARGV[12], "more") end

-- between two beats the heartbeat is written only where it was lost
if ARGV[10] ~= "" then
  beat(ARGV[9], ARGV[10])
else
  call("SET", ROOT .. "workers:heartbeat:" .. WORKER, NOW, "NX", "PX", ARGV[9])
end
promote_due(PROMOTED)
if call("SISMEMBER", PAUSED, queue) == 1 then return answer({}, "paused", 0, "", "others") end

local skills = cmsgpack.unpack(ARGV[11])
local search = {
  want = want, queue = queue, window = tonumber(ARGV[14]), lock_ms = ARGV[8], result_s = result_s, cursor = restore(ARGV[12]),
  group_limit = tonumber(ARGV[17]),
  worker = {server = WORKER, stack = set_of(skills[1]), capabilities = set_of(skills[2]), region = set_of(skills[3])},
}
if ARGV[15] ~= "" then search.serves = set_of(cmsgpack.unpack(ARGV[15])) end
local is_end = scan(search)
if next(search.unhandled) then
  -- use unhandled
  note_unhandled(search, tonumber(ARGV[16]))
end
local unhandled = search.cursor[8]

-- The claimed rows, and a record of them in case the answer is lost.
local claims, noted, names = {}, {}, {}
for position, claim in ipairs(search.claims) do names[position] = JOBS .. "attempts:" .. claim[1] end
local attempts = {}
in_chunks(names, 1000, function(from, to)
  for _, count in ipairs(call("MGET", unpack(names, from, to))) do attempts[#attempts + 1] = count end
end)
for position, claim in ipairs(search.claims) do
  local id, failure = claim[1], {}
  -- a job that was never claimed has not failed
  if claim[3] > 1 or attempts[position] then failure = try("HGETALL", JOBS .. "failure:" .. id) end
  claims[position] = {id, claim[2], attempts[position] or "0", claim[3], failure.err and {} or failure}
  noted[position] = {id, claim[3]}
end
if #claims > 0 then
  call("HSET", TRIP, "number", ARGV[7], "claims", cmsgpack.pack(noted))
  call("EXPIRE", TRIP, TRIP_S)
end

local cursor = cmsgpack.pack(search.cursor)
local length = call("LLEN", WAITING)
local mark = length == 0 and (search.has_groups and "groups" or "empty") or is_end and "others" or "more"
if #claims >= want or not is_end then return answer(claims, "satisfied", 0, cursor, mark, unhandled) end
local due, look = next_due(), search.has_groups and groups_of(queue).next_look()
if look and (due == 0 or look < due) then due = look end
if #search.cursor[5] == 0 then return answer(claims, "drained", due, cursor, mark, unhandled) end
for _, row in ipairs(search.cursor[5]) do
  if row[3] then
    local free = tonumber(NOW) + minute_left(row[1])
    if due == 0 or free < due then due = free end
  end
end
return answer(claims, "limited", due, cursor, mark, unhandled)
