-- count: how many of a page of ids are jobs of one queue.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue   ARGV[5] waiting | delayed | deadletter | active
-- ARGV[6]  where the page begins   ARGV[7] ids a page
-- Returns  how many, and where the next page begins or "0"
-- use keys
-- use jobs
local from, most = tonumber(ARGV[6]), tonumber(ARGV[7])
local ids, following
if ARGV[5] == "active" then
  local page = call("SSCAN", ACTIVE, ARGV[6], "COUNT", most)
  ids, following = page[2], page[1]
else
  local set = ({waiting = WAITING, delayed = DELAYED, deadletter = DEAD})[ARGV[5]]
  ids = call(ARGV[5] == "delayed" and "ZRANGE" or "LRANGE", set, from, from + most - 1)
  following = #ids == most and integer(from + most) or "0"
end
local count = 0
for _, id in ipairs(ids) do
  local raw, job = load_job(id)
  if raw and job.queue == ARGV[4] then count = count + 1 end
end
return {count, following}
