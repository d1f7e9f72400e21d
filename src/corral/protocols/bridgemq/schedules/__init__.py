"""Schedules of the bridgemq protocol: the port, the leader that fires them, and the JSON of a firing."""
