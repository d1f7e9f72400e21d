"""The streams protocol: the Redis Streams job contract, with its holes mended."""

from corral.core.options import Capability

NAME = "streams"
DEFAULT_QUEUE = "jobs"
DEFAULT_NAMESPACE = ""
CAPABILITIES: frozenset[Capability] = frozenset(
    {Capability.CUSTOM_ID, Capability.TTL, Capability.IDEMPOTENCY}
)
EXTRAS: frozenset[str] = frozenset({"ttl_s", "idempotency_key"})
"""Options only this contract knows, in its own words; they reach `JobOptions.extra`."""
TASKS: tuple[str, ...] = ("chat", "plan", "code", "tool", "rag", "embed")
"""The job names this contract has."""
