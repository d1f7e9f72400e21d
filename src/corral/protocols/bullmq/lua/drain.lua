-- drain: delete jobs that wait in one place, all but those their schedulers wait for.
-- KEYS     keys.fixed
-- ARGV[1]  wait, paused, delayed or prioritized   ARGV[2] most jobs looked at   ARGV[3] jobs left alone so far
-- Returns  how many were looked at, how many of these were left alone
-- use sweeping
local most, skipped = tonumber(ARGV[2]), tonumber(ARGV[3])
local place, state = PREFIX .. ARGV[1], queue_state()
local is_list = ARGV[1] == "wait" or ARGV[1] == "paused"
local ids = call(is_list and "LRANGE" or "ZRANGE", place, skipped, skipped + most - 1)
local gone, kept = {}, {}
for _, id in ipairs(ids) do
  if is_next_of_scheduler(id) then
    kept[#kept + 1] = id
  else
    sweep_job(id, state)
    gone[#gone + 1] = id
  end
end
if not is_list then
  leave_set(place, gone)
elseif skipped == 0 and #kept == 0 then
  call("LTRIM", place, #ids, -1)
elseif #gone > 0 then
  -- some stay: they close ranks at the end that was looked at, in their order
  local front = skipped > 0 and call("LRANGE", place, 0, skipped - 1) or {}
  call("LTRIM", place, skipped + #ids, -1)
  for _, id in ipairs(kept) do front[#front + 1] = id end
  for i = #front, 1, -1 do call("LPUSH", place, front[i]) end
end
return {#ids, #kept}
