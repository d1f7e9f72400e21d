"""The BridgeMQ protocol: routing, cron, dead letters and rate limits on BridgeMQ v1's data model."""

from corral.core.options import Capability

NAME = "bridgemq"
DEFAULT_QUEUE = "default"
DEFAULT_NAMESPACE = "bridge"
PROMOTE_MS = 1000
"""The document's scheduler looks every second."""
CAPABILITIES: frozenset[Capability] = frozenset(
    {
        Capability.DELAY,
        Capability.RETRY,
        Capability.PRIORITY,
        Capability.CUSTOM_ID,
        Capability.PAUSE,
        Capability.LOGS,
        Capability.RATE_LIMIT,
        Capability.CRON,
        Capability.ROUTING,
    }
)
EXTRAS: frozenset[str] = frozenset({"target", "rate", "keep_data", "cron", "timezone", "catch_up"})
"""Options only this contract knows, in its own words; they reach `JobOptions.extra`."""
