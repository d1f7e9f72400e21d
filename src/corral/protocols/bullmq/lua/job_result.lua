-- job_result: whether and how a job ended.
-- KEYS     keys.fixed
-- ARGV[1]  id
-- Returns  [1, result], [2, reason], [0, ""] it has not, [-1, ""] it does not exist
-- use queue
local job = PREFIX .. ARGV[1]
if call("EXISTS", job) == 0 then return {-1, ""} end
if call("ZSCORE", COMPLETED, ARGV[1]) then return {1, call("HGET", job, "returnvalue") or "null"} end
if call("ZSCORE", FAILED, ARGV[1]) then return {2, call("HGET", job, "failedReason") or ""} end
return {0, ""}
