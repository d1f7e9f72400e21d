"""What a protocol can do, and the clear refusal where it cannot."""

from enum import StrEnum

from corral.errors import Unsupported


class Capability(StrEnum):
    """Something that one protocol can do and another may not."""

    DELAY = "delay"
    RETRY = "retry"
    PRIORITY = "priority"
    LIFO = "lifo"
    CUSTOM_ID = "custom ids"
    REMOVAL = "removal policies"
    PAUSE = "pause"
    LOGS = "logs"
    RATE_LIMIT = "rate limits"
    CRON = "cron"
    ROUTING = "routing"
    TTL = "time to live"
    IDEMPOTENCY = "idempotency keys"


def require(protocol: str, able: frozenset[Capability], needed: Capability, asked: str) -> None:
    """Refuse `asked` where the protocol's contract has no word for it.

    >>> require("streams", frozenset(), Capability.DELAY, "delay=1000")
    Traceback (most recent call last):
    ...
    corral.errors.Unsupported: protocol 'streams' has no delay, so delay=1000 cannot be kept; leave it out, or use a protocol that has it
    """  # noqa: E501
    if needed not in able:
        raise Unsupported(
            f"protocol {protocol!r} has no {needed.value}, so {asked} cannot be kept; "
            f"leave it out, or use a protocol that has it"
        )
