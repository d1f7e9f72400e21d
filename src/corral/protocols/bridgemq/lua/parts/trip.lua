-- [[id, fence], …] of what one trip claimed, by the record in trips:BROKER; nil where the trip has not arrived.
local function claims_of(record, number)
  local known = call("HMGET", record, "number", "claims")
  return known[1] == number and cmsgpack.unpack(known[2]) or nil
end
