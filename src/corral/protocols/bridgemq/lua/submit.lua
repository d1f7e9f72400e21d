-- submit: add jobs: data, status and an entry in waiting, delayed or cron. A job that exists stays as it is.
-- KEYS     .. [11] keys.fixed, then data and status of each job, then the ledger where there is one
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] queue
-- ARGV[5]  msgpack [[id, JSON, status, score, type, is front, unique (below) or nil, group or nil], …]
-- ARGV[6]  seconds the ledger is kept, or ""
-- Returns  [position, …] of those that existed, or that the ledger knows, [[position, id], …] of the jobs that
--          count as the same as theirs
-- use keys
-- use jobs
local rows = cmsgpack.unpack(ARGV[5])
local existing, others, LEDGER = {}, {}, ARGV[6] ~= "" and KEYS[FIXED + 2 * #rows + 1]
local groups -- where a job has one

local function add(row, job, data, status)
  local id = row[1]
  call("SET", data, row[2])
  call("SET", status, row[3])
  -- delete what an earlier job of this id left; its fence continues, so that old receipts stay invalid
  call("DEL", JOBS .. "attempts:" .. id, JOBS .. "failure:" .. id, JOBS .. "result:" .. id,
       JOBS .. "progress:" .. id, JOBS .. "summary:" .. id, JOBS .. "log:" .. id)
  call("PERSIST", JOBS .. "fence:" .. id)
  if row[3] == "waiting" then
    if row[8] then
      if not groups then
        -- use groups
        groups = groups_of(ARGV[4])
      end
      groups.add(id, row[8])
    else
      call(row[6] and "LPUSH" or "RPUSH", WAITING, id)
    end
  else
    call("ZADD", row[3] == "cron" and CRON or DELAYED, row[4], id)
  end
  emit("added", id, job, "", "to", row[3])
end

-- a full server refuses this before anything else is written
call("SADD", KNOWN, ARGV[4])
for position, row in ipairs(rows) do
  local id, job = row[1], {type = row[5], queue = ARGV[4]}
  local data, status = KEYS[FIXED + 2 * position - 1], KEYS[FIXED + 2 * position]
  if LEDGER and call("SADD", LEDGER, id) == 0 then
    existing[#existing + 1] = position - 1
  elseif call("EXISTS", data, status) > 0 then
    existing[#existing + 1] = position - 1
    emit("duplicated", id, job, "")
  else
    local same
    if row[7] then
      -- use same_job
      same = same_job(row[7], id, job)
    end
    if same then
      existing[#existing + 1] = position - 1
      others[#others + 1] = {position - 1, same}
      emit("duplicated", same, job, "")
    else
      add(row, job, data, status)
    end
  end
end
if LEDGER and #rows > 0 then call("EXPIRE", LEDGER, ARGV[6]) end
return {existing, others}
