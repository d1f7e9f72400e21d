"""Redis plumbing with no job knowledge."""
