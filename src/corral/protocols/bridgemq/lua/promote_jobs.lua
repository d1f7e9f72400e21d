-- promote_jobs: make delayed jobs claimable now.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue   ARGV[5] .. job ids of that queue
-- Returns  [id, …] of the jobs for which that was done
-- use keys
-- use groups
local done = {}
for position = 5, #ARGV do
  local id = ARGV[position]
  if call("ZREM", DELAYED, id) == 1 then
    local raw, job = load_job(id)
    if raw then
      wait_in_place(id, job)
      emit("waiting", id, job, "", "prev", "delayed")
      done[#done + 1] = id
    end
  end
end
return done
