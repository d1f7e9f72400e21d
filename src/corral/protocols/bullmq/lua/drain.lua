-- drain: delete the jobs of one list or set, but not the next job of a scheduler.
-- KEYS     keys.fixed
-- ARGV[1]  wait, paused, delayed, prioritized or grouped   ARGV[2] most jobs looked at   ARGV[3] jobs skipped so far
-- Returns  how many were looked at, how many of these were kept
-- use delete_jobs
local most, skipped = tonumber(ARGV[2]), tonumber(ARGV[3])
local source, state = PREFIX .. ARGV[1], queue_state()
local is_list = ARGV[1] == "wait" or ARGV[1] == "paused"
local ids = call(is_list and "LRANGE" or "ZRANGE", source, skipped, skipped + most - 1)
local removed, kept = {}, {}
for _, id in ipairs(ids) do
  if is_next_of_scheduler(id) then
    kept[#kept + 1] = id
  else
    if ARGV[1] == "grouped" then leave_group(PREFIX, id) end
    delete_job(id, state)
    removed[#removed + 1] = id
  end
end
if not is_list then
  remove_members(source, removed)
elseif skipped == 0 and #kept == 0 then
  call("LTRIM", source, #ids, -1)
elseif #removed > 0 then
  -- those that are kept go back to the end that was read, in their order
  local front = skipped > 0 and call("LRANGE", source, 0, skipped - 1) or {}
  call("LTRIM", source, skipped + #ids, -1)
  for _, id in ipairs(kept) do front[#front + 1] = id end
  for i = #front, 1, -1 do call("LPUSH", source, front[i]) end
end
return {#ids, #kept}
