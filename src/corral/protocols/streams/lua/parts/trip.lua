-- The entries that one trip claimed, by the record in jobs:trip:BROKER; nil where the trip has not arrived.
local function entries_of(record, number)
  local known, entries = call("HMGET", record, "number", "entries"), {}
  if known[1] ~= number then return nil end
  for entry in string.gmatch(known[2], "%S+") do entries[#entries + 1] = entry end
  return entries
end

-- The fields of an entry's body and its delivery count, while it is pending for this worker; else nil.
local function pending_body(entry)
  local pending = try("XPENDING", STREAM, GROUP, entry, entry, 1)
  local found = call("XRANGE", STREAM, entry, entry)
  if pending.err or not pending[1] or pending[1][2] ~= WORKER or not found[1] then return nil end
  return fields_of(found[1][2]), pending[1][4]
end
