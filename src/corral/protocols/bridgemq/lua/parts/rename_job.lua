-- A job's JSON with another id, otherwise byte for byte the same: a decoder would lose parts of it.

-- Where the string that begins at `from` (its quote) ends.
local function string_end(raw, from)
  local at = from + 1
  while true do
    local stop = string.find(raw, '["\\]', at)
    if string.sub(raw, stop, stop) == '"' then return stop end
    at = stop + 2
  end
end

-- Where the value that begins at `from` ends; the JSON is known to be valid.
local function value_end(raw, from)
  local first = string.sub(raw, from, from)
  if first == '"' then return string_end(raw, from) end
  if first ~= "{" and first ~= "[" then return string.find(raw, "[%s,}%]]", from) - 1 end
  local depth, at = 0, from
  while true do
    at = string.find(raw, '["{}%[%]]', at)
    local mark = string.sub(raw, at, at)
    if mark == '"' then
      at = string_end(raw, at)
    elseif mark == "{" or mark == "[" then
      depth = depth + 1
    else
      depth = depth - 1
      if depth == 0 then return at end
    end
    at = at + 1
  end
end

local function renamed(raw, id)
  local quoted = cjson.encode(id)
  local pieces, copied, found = {}, 1, false
  local at = string.find(raw, "{", 1, true) + 1
  while true do
    at = string.find(raw, '["}]', at)
    if string.sub(raw, at, at) == "}" then break end
    local key_end = string_end(raw, at)
    local key = string.sub(raw, at + 1, key_end - 1)
    local from = string.find(raw, "[^%s:]", key_end + 1)
    local to = value_end(raw, from)
    if key == "id" or key == "jobId" then
      pieces[#pieces + 1] = string.sub(raw, copied, from - 1) .. quoted
      copied, found = to + 1, true
    end
    at = to + 1
  end
  pieces[#pieces + 1] = string.sub(raw, copied)
  local text = table.concat(pieces)
  if found then return text end
  local open = string.find(text, "{", 1, true)
  local is_empty = string.find(text, "^%s*}", open + 1)
  return string.sub(text, 1, open) .. '"id":' .. quoted .. (is_empty and "" or ",") .. string.sub(text, open + 1)
end
