-- marks: count a stretch of a stream without sending it, with a mark at every step.
-- KEYS     the stream
-- ARGV[1]  from this id ("(…" after it)   ARGV[2] until this id   ARGV[3] entries to the first mark
-- ARGV[4]  entries from mark to mark        ARGV[5] most entries a call
-- Returns  count, [place, id, place, id, …], last id counted or "", is it the whole (1) or not (0),
--          XINFO STREAM of the same moment, empty where there is no stream
local call, STREAM, PAGE = redis.call, KEYS[1], 100
local from, to, step, most = ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local counted, last, marks, next_mark, whole = 0, "", {}, tonumber(ARGV[3]), 0
if call("EXISTS", STREAM) == 0 then return {0, {}, "", 1, {}} end
while counted < most and whole == 0 do
  -- small pages: a large one costs twice as much in here
  local entries = call("XRANGE", STREAM, from, to, "COUNT", PAGE)
  while next_mark <= counted + #entries do
    marks[#marks + 1] = next_mark
    marks[#marks + 1] = entries[next_mark - counted][1]
    next_mark = next_mark + step
  end
  counted = counted + #entries
  if #entries > 0 then last = entries[#entries][1] end
  if #entries < PAGE then whole = 1 end
  from = "(" .. last
end
return {counted, marks, last, whole, call("XINFO", "STREAM", STREAM)}
