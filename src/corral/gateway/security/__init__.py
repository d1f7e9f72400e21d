"""API keys, roles, and the checks that every request passes."""
