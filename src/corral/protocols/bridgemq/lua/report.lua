-- report: write a handler's progress, log line or event while its claim is held.
-- KEYS     .. [11] keys.fixed, then lock and fence of the job
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] id   ARGV[5] fence   ARGV[6] type   ARGV[7] queue
-- ARGV[8]  "progress", "log" or "event"   ARGV[9] progress JSON, line, or the event's name
-- ARGV[10] data of the event   ARGV[11] log lines kept
-- Returns  lines in the log, 0, or minus a code
-- use keys
-- use settle
local id, job = ARGV[4], {type = ARGV[6], queue = ARGV[7]}
local code = held_of({{id, tonumber(ARGV[5])}})[1]
if code ~= 0 then return -code end
if ARGV[8] == "log" then
  local lines = call("RPUSH", JOBS .. "log:" .. id, ARGV[9])
  local most = tonumber(ARGV[11])
  if lines <= most then return lines end
  call("LTRIM", JOBS .. "log:" .. id, -most, -1)
  return most
end
if ARGV[8] == "progress" then
  call("SET", JOBS .. "progress:" .. id, ARGV[9])
  emit("progress", id, job, ARGV[10])
else
  emit(ARGV[9], id, job, ARGV[10])
end
return 0
