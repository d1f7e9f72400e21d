-- audit: correct the concurrent counters to the number of active jobs.
-- KEYS     .. [11] keys.fixed
-- ARGV[1]  .. [3] as in parts/keys   ARGV[4] .. job types that have a counter
-- Returns  [type, counted before, counted now, …] of those that were wrong
-- use keys
-- use jobs
local real = {}
for position = 4, #ARGV do real[ARGV[position]] = 0 end

local ids = call("SMEMBERS", ACTIVE)
in_chunks(ids, 1000, function(from, to)
  local holders = call("HMGET", HOLDERS, unpack(ids, from, to))
  for position = from, to do
    local packed = holders[position - from + 1]
    local holder = packed and cmsgpack.unpack(packed)
    local kind = holder and holder[1] ~= "?" and holder[3]
    if not kind then
      local raw, job = load_job(ids[position])
      kind = raw and job.type
    end
    if kind then real[kind] = (real[kind] or 0) + 1 end
  end
end)

local mended = {}
for kind, count in pairs(real) do
  local counter = ROOT .. "ratelimit:concurrent:" .. kind
  local before = try("GET", counter)
  before = type(before) == "string" and tonumber(before) or 0
  if before ~= count then
    if count == 0 then call("DEL", counter) else call("SET", counter, count) end
    mended[#mended + 1] = kind
    mended[#mended + 1] = before
    mended[#mended + 1] = count
  end
end
return mended
