"""Corral: a job system on Redis for Python."""
