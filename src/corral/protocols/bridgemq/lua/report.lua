-- report: write a handler's progress, log line or event while its claim is held.
-- KEYS     .. [11] keys.fixed, then lock and fence of the job
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] id   ARGV[5] fence   ARGV[6] type   ARGV[7] queue
-- ARGV[8]  "progress", "log" or "event"   ARGV[9] progress JSON, line, or the event's name
-- ARGV[10] data of the event   ARGV[11] log lines kept   ARGV[12] mark, or ""   ARGV[13] ms a mark is kept
-- Returns  lines in the log, 0, or minus a code
-- use keys
-- use settle
-- use marks
local id, job = ARGV[4], {type = ARGV[6], queue = ARGV[7]}
local code = held_of({{id, tonumber(ARGV[5])}})[1]
if code ~= 0 then return -code end
local is_new = not is_repeated(JOBS .. "marks:" .. id, ARGV[12], ARGV[13])
if ARGV[8] == "log" then
  local log = JOBS .. "log:" .. id
  local lines = is_new and call("RPUSH", log, ARGV[9]) or call("LLEN", log)
  local most = tonumber(ARGV[11])
  if lines <= most then return lines end
  call("LTRIM", log, -most, -1)
  return most
end
if ARGV[8] == "progress" then
  call("SET", JOBS .. "progress:" .. id, ARGV[9])
  emit("progress", id, job, ARGV[10])
elseif is_new then
  emit(ARGV[9], id, job, ARGV[10])
end
return 0
