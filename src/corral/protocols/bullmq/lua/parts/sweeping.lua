-- Delete many jobs of this queue; a parent that waited for none but them goes too.
-- use removal

local function sweep_job(id, state)
  family_of(state).forget_child(PREFIX .. id, nil, true)
  make_protocol(PREFIX, id)
  remove_keys(PREFIX .. id)
end

local function leave_set(set, ids)
  in_chunks(ids, 5000, function(from, to) call("ZREM", set, unpack(ids, from, to)) end)
end
