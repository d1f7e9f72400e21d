"""The processes that are measured: each carries out one order and prints one reading."""
