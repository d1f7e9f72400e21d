-- process_delayed: the document's own promotion: jobs that are due go to the back of waiting.
-- KEYS[1]  delayed   KEYS[2] waiting
-- ARGV[1]  now ms   ARGV[2] most jobs (100)
-- Returns  how many were moved
-- use document_keys
-- use jobs
local refused = name_from(KEYS[1], "delayed")
if refused then return refused end
NOW = integer(tonumber(ARGV[1]) or 0)
local ids = call("ZRANGEBYSCORE", KEYS[1], 0, NOW, "LIMIT", 0, tonumber(ARGV[2] or 100) or 100)
for _, id in ipairs(ids) do
  local raw, job = load_job(id)
  call("ZREM", KEYS[1], id)
  call("RPUSH", KEYS[2], id)
  if raw then
    call("SET", JOBS .. "status:" .. id, "waiting")
    emit("waiting", id, job, "", "prev", "delayed")
  end
end
return #ids
