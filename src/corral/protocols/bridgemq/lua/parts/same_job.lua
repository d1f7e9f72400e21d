-- Jobs that count as the same as a new one; ARGV[4] is the queue.
-- use delete_job
local PENDING = {waiting = true, delayed = true, active = true, failed = true}

-- Returns the id of the job that counts as the same as this new one; nil where it is to be added.
-- unique: [what they have in common, ms, only until it has ended, replaces a delayed one]; the key is Corral's own
local function same_job(unique, id, job)
  local key = ROOT .. "unique:" .. ARGV[4] .. ":" .. unique[1]
  local known = call("GET", key)
  if known then
    local status = call("GET", JOBS .. "status:" .. known)
    if unique[4] then
      if status == "delayed" and call("ZREM", DELAYED, known) == 1 then
        delete_job(known)
        emit("removed", known, job, "", "prev", "delayed")
      end
    elseif not unique[3] or PENDING[status] then
      return known
    end
  end
  call("SET", key, id, "PX", unique[2])
  return nil
end
