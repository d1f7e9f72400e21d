-- turn: settle a batch of claims, then claim as many as wanted.
-- KEYS     keys.fixed, then the lock of each settled job, in order
-- ARGV[1]  now ms   ARGV[2] receipt   ARGV[3] lock ms   ARGV[4] want
-- ARGV[5]  msgpack of the settlements (parts/settle)
-- ARGV[6]  worker name or ""   ARGV[7] limit count or ""   ARGV[8] limit ms or ""
-- ARGV[9]  metrics points or ""   ARGV[10] most bytes of job fields in one answer   ARGV[11] active jobs of a group or ""
-- Returns  [[position, code, text], …] of those that were not settled, how many were claimed, those as msgpack
--          [[id, fields], …] or "", reason, until ms, 1 where a scheduler made one of them
-- use queue
-- use claim
-- use settle
local want = tonumber(ARGV[4])
local ids, values, numbers, rows = unpack(cmsgpack.unpack(ARGV[5]))
local state = queue_state()

local refused, ended = {}, false
if #ids > 0 then
  if want > 0 then state.last_id = ids[#ids] end
  refused, ended = settle_all(ids, values, numbers, rows, state, tonumber(ARGV[9]))
end

local claims, reason, till = {}, "satisfied", 0
if want > 0 then
  claims, reason, till = claim(want, ARGV[1], ARGV[2], ARGV[3], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]),
                            tonumber(ARGV[10]), state, tonumber(ARGV[11]))
end

if state.owes_marker and #claims == 0 then wake_when_due() end

-- emit "drained" when the last job has ended, unless a delayed one is known to follow
if ended and #claims == 0 and (want == 0 or (reason == "drained" and till == 0))
   and call("LLEN", WAIT) == 0 and call("LLEN", ACTIVE) == 0 and call("ZCARD", PRIORITIZED) == 0
   and not (state.groups and not groups_of(state).are_empty()) then
  call("XADD", EVENTS, "*", "event", "drained")
end
local packed = #claims > 0 and cmsgpack.pack(claims) or ""
return {refused, #claims, packed, reason, till, state.is_scheduled and 1 or 0}
