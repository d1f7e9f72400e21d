-- Whether a handler's line or event was written before, because its reply was lost and it was sent again; else its
-- mark is noted for so many ms. Those of the last 64 calls are kept: more are not sent at once.
local function is_repeated(key, mark, ms)
  if mark == "" then return false end
  if call("LPOS", key, mark) then return true end
  call("LPUSH", key, mark)
  call("LTRIM", key, 0, 63)
  call("PEXPIRE", key, ms)
  return false
end
