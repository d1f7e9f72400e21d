-- Move jobs that are due from delayed to waiting, at most `most`; returns how many.
-- use groups
local function promote_due(most)
  local ids = call("ZRANGEBYSCORE", DELAYED, "-inf", NOW, "LIMIT", 0, most)
  if #ids == 0 then return 0 end
  call("ZREM", DELAYED, unpack(ids))
  for _, id in ipairs(ids) do
    local raw, job = load_job(id)
    if raw then -- an id whose job does not exist must not make half a job
      wait_in_place(id, job)
      emit("waiting", id, job, "", "prev", "delayed")
    end
  end
  return #ids
end
