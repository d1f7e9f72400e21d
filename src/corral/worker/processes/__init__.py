"""Handlers in spawned processes: the pool, the child's side of the pipe, and errors sent through it."""
