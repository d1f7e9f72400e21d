-- Delete many jobs of this queue; a parent that waited for them alone is deleted too.
-- use remove_job

local function delete_job(id, state)
  parents_of(state).detach_child(PREFIX .. id, nil, true)
  release_deduplication(PREFIX, id)
  remove_keys(PREFIX .. id)
end

local function remove_members(set, ids)
  in_chunks(ids, 5000, function(from, to) call("ZREM", set, unpack(ids, from, to)) end)
end
