-- remove_scheduler: delete a scheduler, and its next job where that is still delayed.
-- KEYS     keys.fixed
-- ARGV[1]  scheduler id
-- Returns  1, or 0 there is none
-- use queue
local due = call("ZSCORE", REPEAT, ARGV[1])
if not due then return 0 end
local id = "repeat:" .. ARGV[1] .. ":" .. due
if call("ZREM", DELAYED, id) == 1 then
  remove_keys(PREFIX .. id)
  call("XADD", EVENTS, "*", "event", "removed", "jobId", id, "prev", "delayed")
end
call("ZREM", REPEAT, ARGV[1])
call("DEL", REPEAT .. ":" .. ARGV[1])
return 1
