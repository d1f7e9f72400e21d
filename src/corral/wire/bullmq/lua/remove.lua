-- remove: delete jobs that nobody holds.
-- KEYS     keys.fixed
-- ARGV     id, …
-- Returns  [id, …] that were removed
-- use queue
-- use removal
local state = queue_state()
local done = {}
for _, id in ipairs(ARGV) do
  if call("EXISTS", PREFIX .. id .. ":lock") == 0 and remove_job(id, state) then done[#done + 1] = id end
end
return done
