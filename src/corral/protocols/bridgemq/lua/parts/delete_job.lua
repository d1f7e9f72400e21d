-- Delete the keys of a job.
local KEPT = {"data:", "status:", "result:", "progress:", "attempts:", "failure:", "summary:", "log:"}

local function delete_job(id)
  local names = {}
  for position, part in ipairs(KEPT) do names[position] = JOBS .. part .. id end
  local deleted = call("DEL", unpack(names))
  -- its fence stays for a day: old receipts must not be valid for a new job of this id
  call("EXPIRE", JOBS .. "fence:" .. id, 86400)
  return deleted
end
