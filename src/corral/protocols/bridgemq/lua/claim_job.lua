-- claim_job: the document's own claim: the first job of the first 100 that fits.
-- KEYS[1]  waiting   KEYS[2] active   KEYS[3] paused queues
-- ARGV[1]  worker id   ARGV[2] stack, JSON array   ARGV[3] capabilities, JSON array   ARGV[4] region, JSON array
-- ARGV[5]  now ms   ARGV[6] lock s   ARGV[7] "…:jobs:data:"   ARGV[8] "…:jobs:lock:"   ARGV[9] "…:ratelimit:concurrent:"
-- ARGV[10] may be left out: how many jobs to look at (100)
-- Returns  the job's JSON, or nil
-- use document_keys
-- use take_job
local WINDOW, RESULT_S = positive(tonumber(ARGV[10])) or 100, 86400
local refused = name_from(ARGV[7], "data:")
if refused then return refused end
WAITING, ACTIVE, PAUSED = KEYS[1], KEYS[2], KEYS[3]
WORKER, NOW = ARGV[1], integer(tonumber(ARGV[5]) or 0)
local worker = {server = WORKER}
for position, name in ipairs({"stack", "capabilities", "region"}) do
  local fine, words = pcall(cjson.decode, ARGV[position + 1])
  if not fine or type(words) ~= "table" then
    return redis.error_reply("ERR the worker's " .. name .. " is no JSON array of words, such as [\"gpu\"]; nothing was claimed")
  end
  worker[name] = set_of(words)
end
local lock_ms = integer((tonumber(ARGV[6]) or 30) * 1000)

for _, id in ipairs(call("LRANGE", WAITING, 0, WINDOW - 1)) do
  local raw, job = load_job(id)
  local verdict = check_job(id, raw, job, worker, nil)
  if verdict == "fits" and take(id, job, lock_ms, "s") then
    call("LREM", WAITING, 1, id)
    write_taken()
    return raw
  elseif verdict == GONE then
    call("LREM", WAITING, 1, id)
  elseif verdict == BROKEN then
    call("LREM", WAITING, 1, id)
    local reason, name = dead_letter_reason(job)
    dead_letter(id, job, reason, name, RESULT_S)
  end
end
return nil
