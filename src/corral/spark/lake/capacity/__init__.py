"""Capacity: how many workers and slots a queue needs, by a simulation of what the lake has seen."""
