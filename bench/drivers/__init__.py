"""The processes that are measured: each carries out one task and prints one reading."""
