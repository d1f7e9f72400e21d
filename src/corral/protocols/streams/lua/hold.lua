-- hold: take the queue entries of jobs away, so that nobody claims them while they are moved elsewhere.
-- KEYS     jobs:stream jobs:events, then the run, the held jobs
-- ARGV[1]  .. [5] as in parts/job_events   ARGV[6] id of the run   ARGV[7] batch   ARGV[8] msgpack [[id], …]
-- Returns  for each [receipt], or why not: active, gone; nothing where the run has ended
-- use parked
-- use backlog
local RUN, HELD = KEYS[3], KEYS[4]
if call("HGET", RUN, "id") ~= ARGV[6] then return false end
local groups = cmsgpack.unpack(ARGV[8])
local PAGE, MOST = 1000, 50000 -- entries looked at in one call
local wanted, entry_of, missing = {}, {}, 0
for _, group in ipairs(groups) do
  local status = call("HGET", JOB .. group[1], "status")
  if status == "queued" then wanted[group[1]], missing = true, missing + 1 end
end

local function look_at(entries)
  for _, entry in ipairs(entries) do
    local id = fields_of(entry[2]).job_id
    if id and wanted[id] and not entry_of[id] then entry_of[id], missing = entry[1], missing - 1 end
  end
end

for _, parking in ipairs(missing > 0 and parkings() or {}) do
  for _, row in ipairs(call("XPENDING", STREAM, GROUP, "-", "+", PAGE, parking[1])) do
    look_at(call("XRANGE", STREAM, row[1], row[1]))
  end
end
local _, _, last = group_state(STREAM)
local seen = 0
while missing > 0 and seen < MOST do
  local entries = call("XRANGE", STREAM, "(" .. last, "+", "COUNT", PAGE)
  look_at(entries)
  seen = seen + #entries
  if #entries < PAGE then break end
  last = entries[#entries][1]
end

local answers = {}
for number, group in ipairs(groups) do
  local id = group[1]
  local status = call("HGET", JOB .. id, "status")
  if status == "running" or status == "queued" and not entry_of[id] then
    answers[number] = "active"
  elseif not status then
    answers[number] = "gone"
  else
    if entry_of[id] then delete_entry(entry_of[id]) end
    local receipt = cmsgpack.pack({ARGV[7], status, "", id})
    call("ZADD", HELD, call("HINCRBY", RUN, "sequence", 1), receipt)
    answers[number] = {receipt}
  end
end
delete_entries()
return answers
