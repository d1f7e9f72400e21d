-- Whether a worker fits a target: the rule of core/routing.py, over decoded JSON.
-- A worker is {server = id, stack = {word = true}, capabilities = {…}, region = {…}}.

-- The words of a criterion as a list, or nil where it is malformed.
local function words_of(value)
  if value == nil or value == cjson.null then return {} end
  if type(value) == "string" then return {value} end
  if type(value) ~= "table" then return nil end
  for key, word in pairs(value) do
    if type(key) ~= "number" or type(word) ~= "string" then return nil end
  end
  return value
end

local function has_one(words, known)
  for _, word in ipairs(words) do
    if known[word] then return true end
  end
  return false
end

local function has_all(words, known)
  for _, word in ipairs(words) do
    if not known[word] then return false end
  end
  return true
end

-- Returns true, false, or nil where the target is invalid.
local function fits(target, worker)
  if target == nil or target == cjson.null then return true end
  if type(target) ~= "table" then return nil end
  -- an empty list and an empty object look alike here
  if next(target) == nil then return true end
  if target[1] ~= nil then return nil end
  local server, mode = target.server, target.mode
  if server ~= nil and server ~= cjson.null and server ~= "" then
    if type(server) ~= "string" then return nil end
    return server == worker.server
  end
  if mode == nil or mode == cjson.null then mode = "all" end
  if mode ~= "all" and mode ~= "any" then return nil end
  local stack, capabilities, region =
    words_of(target.stack), words_of(target.capabilities), words_of(target.region)
  if not (stack and capabilities and region) then return nil end
  local given, found = 0, 0
  if #stack > 0 then
    given = given + 1
    if has_one(stack, worker.stack) then found = found + 1 end
  end
  if #capabilities > 0 then
    given = given + 1
    if (mode == "all" and has_all or has_one)(capabilities, worker.capabilities) then found = found + 1 end
  end
  if #region > 0 then
    given = given + 1
    if has_one(region, worker.region) then found = found + 1 end
  end
  if mode == "all" then return found == given end
  return given == 0 or found > 0
end

-- A list of words as a set.
local function set_of(words)
  local known = {}
  for _, word in ipairs(words) do known[word] = true end
  return known
end
