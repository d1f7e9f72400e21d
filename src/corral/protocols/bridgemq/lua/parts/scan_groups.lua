-- A queue with groups: jobs of groups and jobs of none take turns. parts/scan has scan_list.

-- Claim up to `count` jobs that wait in groups, a job of each group in turn.
local function claim_grouped(search, count)
  local groups, wanted, kept = groups_of(search.queue), #search.claims + count, {}
  while #search.claims < wanted and #kept < search.window and not is_filled(search) do
    local rows = groups.pop(wanted - #search.claims, search.group_limit)
    if #rows == 0 then break end
    for _, row in ipairs(rows) do
      local raw = try("GET", JOBS .. "data:" .. row[1])
      local verdict = is_filled(search) and "kept" or consider(search, row[1], type(raw) == "string" and raw or false)
      if verdict == "kept" then
        kept[#kept + 1] = row
        groups.leave(row[1], row[2])
      end
    end
  end
  for _, row in ipairs(kept) do groups.put_back(unpack(row)) end
end

local function scan_all(search)
  local groups, want, is_alone = groups_of(search.queue), search.want, call("LLEN", WAITING) == 0
  local share = is_alone and want or groups.share(want)
  if share > 0 then claim_grouped(search, share) end
  local is_end = is_alone or (not is_filled(search) and scan_list(search))
  if not is_filled(search) and share < want then claim_grouped(search, want - #search.claims) end
  return is_end and not is_filled(search) and not groups.is_cut
end
