"""The rest of the field: one driver for each, run in an environment of its own."""
