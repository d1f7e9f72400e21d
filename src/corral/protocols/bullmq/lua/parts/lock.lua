-- Returns 0 where the job is locked under this receipt ("": any), or the code for why not.
local function held(id, receipt)
  if call("EXISTS", PREFIX .. id) == 0 then return -1 end
  if receipt == "" then return 0 end
  local lock = call("GET", KEYS[FIXED + 1])
  if not lock then return -2 end
  return lock == receipt and 0 or -6
end
