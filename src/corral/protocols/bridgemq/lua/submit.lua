-- submit: add jobs whole: data, status and a place in waiting, delayed or cron. A job that exists stays as it is.
-- KEYS     .. [11] keys.fixed, then data and status of each job, then the ledger where there is one
-- ARGV[1]  .. [3] as in parts/names   ARGV[4] queue
-- ARGV[5]  msgpack [[id, JSON, status, score, type, is front], …]   ARGV[6] seconds the ledger is kept, or ""
-- Returns  [position, …] of those that were there already, or that the ledger knows
-- use names
-- use jobs
local PLACES = {
  waiting = function(row) call(row[6] and "LPUSH" or "RPUSH", WAITING, row[1]) end,
  delayed = function(row) call("ZADD", DELAYED, row[4], row[1]) end,
  cron = function(row) call("ZADD", CRON, row[4], row[1]) end,
}
local rows = cmsgpack.unpack(ARGV[5])
local existing, LEDGER = {}, ARGV[6] ~= "" and KEYS[FIXED + 2 * #rows + 1]

-- a full server refuses this before anything else is written
call("SADD", KNOWN, ARGV[4])
for position, row in ipairs(rows) do
  local id, job = row[1], {type = row[5], queue = ARGV[4]}
  local data, status = KEYS[FIXED + 2 * position - 1], KEYS[FIXED + 2 * position]
  if LEDGER and call("SADD", LEDGER, id) == 0 then
    existing[#existing + 1] = position - 1
  elseif call("EXISTS", data, status) > 0 then
    existing[#existing + 1] = position - 1
    tell("duplicated", id, job, "")
  else
    call("SET", data, row[2])
    call("SET", status, row[3])
    -- what an earlier life of this id left; its fence goes on, so that nothing said then holds now
    call("DEL", JOBS .. "attempts:" .. id, JOBS .. "failure:" .. id, JOBS .. "result:" .. id,
         JOBS .. "progress:" .. id, JOBS .. "summary:" .. id, JOBS .. "log:" .. id)
    call("PERSIST", JOBS .. "fence:" .. id)
    PLACES[row[3]](row)
    tell("added", id, job, "", "to", row[3])
  end
end
if LEDGER and #rows > 0 then call("EXPIRE", LEDGER, ARGV[6]) end
return existing
