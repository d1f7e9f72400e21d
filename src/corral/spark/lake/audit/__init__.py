"""Audits of a lake or a server, and comparisons of two queues."""
