-- cancel: remove jobs that have not started, and mark active ones, whose workers end them when they renew.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [id, …] that were removed or marked
-- use remove_job
local state = queue_state()
local done = {}
for _, id in ipairs(ARGV) do
  local job = PREFIX .. id
  if call("EXISTS", job) == 1 and not call("ZSCORE", COMPLETED, id) and not call("ZSCORE", FAILED, id) then
    if call("EXISTS", job .. ":lock") == 1 then
      call("SADD", CANCELLING, id)
      done[#done + 1] = id
    elseif remove_unlocked(id, state, true) == 1 then
      done[#done + 1] = id
    end
  end
end
return done
