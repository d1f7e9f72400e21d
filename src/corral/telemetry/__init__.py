"""What the house tells its keepers: metrics and logs."""
