-- schedule: add a schedule, or change it; with the same cron and zone its next firing stays the same.
-- KEYS     .. [11] keys.fixed, then scheduler:leases
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue   ARGV[5] id   ARGV[6] JSON   ARGV[7] next firing ms
-- ARGV[8]  cron   ARGV[9] zone   ARGV[10] type
-- Returns  "added", "changed" or "kept"; "taken" where a job that is no schedule has that id: then nothing was written
-- use keys
-- use jobs
local id, data, status = ARGV[5], JOBS .. "data:" .. ARGV[5], JOBS .. "status:" .. ARGV[5]
local raw, before = load_job(id)
local known = call("GET", status)
local score = call("ZSCORE", CRON, id)
if known and known ~= "cron" or (raw and not known and not score) then return "taken" end

local word = "added"
if raw then
  local is_same = before.schedule.cron == ARGV[8] and (text_of(before.schedule.timezone) or "UTC") == ARGV[9]
  word = is_same and score and "kept" or "changed"
end
call("SADD", KNOWN, ARGV[4])
call("SET", data, ARGV[6])
call("SET", status, "cron")
if word ~= "kept" then
  call("ZADD", CRON, ARGV[7], id)
  call("HDEL", KEYS[FIXED + 1], id)
end
if word == "added" then emit("added", id, {type = ARGV[10], queue = ARGV[4]}, "", "to", "cron") end
return word
