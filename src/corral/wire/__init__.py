"""The rooms: one wire contract each."""
