"""What the streams contract knows of options: those of jobs, and the settings of its workers."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from corral.core.job import DEFAULT_ATTEMPTS, Backoff, JobOptions
from corral.core.options import Capability, Lack, require, whole_seconds
from corral.core.ports import Profile
from corral.errors import InvalidOptions
from corral.protocols.streams.keys import NAME

CAPABILITIES = frozenset({Capability.CUSTOM_ID, Capability.TTL, Capability.IDEMPOTENCY, Capability.UNIQUE})
OPTIONS = {
    "ttl_s": "Seconds it is kept",
    "idempotency_key": "The same key gives the same job",
}
"""The options only this protocol knows, with their help texts."""
LACKS = {
    "pause": Lack("pause", "stop its workers instead"),
    "resume": Lack("pause, so there is nothing to resume", "start workers instead"),
    "retry": Lack("retry: an ended job stays ended", "submit its payload as a new job"),
    "replay": Lack("replay: an ended job stays ended", "submit its payload as a new job"),
    "promote": Lack("delay, so there is nothing to promote", "a queued job runs as soon as a worker is free"),
    "update": Lack("changes of a job", "cancel it, and submit another"),
    "limits": Lack("rate limits", "start fewer workers, or limit clients at the gateway"),
    "obliterate": Lack("queue besides its one", "drain and clean it instead"),
    "schedules": Lack("cron, so there are no schedules", "use a protocol that has it"),
    "flows": Lack("flows", "use a protocol that has it"),
}
MOST_TTL_S = 2_147_483_647

_IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,255}")


def check_options(options: JobOptions) -> None:
    """Refuse options that the contract has no word for."""
    if options != JobOptions(attempts=1, backoff=None, unique=options.unique, extra=options.extra):
        _check_shared(options)
    unknown = sorted(options.extra.keys() - OPTIONS.keys())
    if unknown:
        raise InvalidOptions(
            f"protocol {NAME!r} does not know the option {unknown[0]!r}; it has {', '.join(sorted(OPTIONS))}"
        )


def _check_shared(options: JobOptions) -> None:
    refused = (
        (options.delay != 0, Capability.DELAY, f"delay={options.delay}"),
        (options.priority != 0, Capability.PRIORITY, f"priority={options.priority}"),
        (options.lifo, Capability.LIFO, "lifo=True"),
        # the defaults of the model cannot be told from no option; here a failure is final either way
        (options.attempts not in (0, 1, DEFAULT_ATTEMPTS), Capability.RETRY, f"attempts={options.attempts}"),
        (options.backoff not in (None, Backoff()), Capability.RETRY, f"backoff={options.backoff}"),
        (options.keep_completed is not None, Capability.REMOVAL, f"keep_completed={options.keep_completed}"),
        (options.keep_dead is not None, Capability.REMOVAL, f"keep_dead={options.keep_dead}"),
        (options.keep_logs is not None, Capability.LOGS, f"keep_logs={options.keep_logs}"),
        (options.group is not None, Capability.GROUPS, f"group={options.group!r}"),
    )
    for is_refused, capability, option in refused:
        if is_refused:
            require(NAME, CAPABILITIES, capability, option)


def ttl_of(extra: Mapping[str, Any], default: int) -> int:
    """Return how many seconds a job lives."""
    value = whole_seconds(extra.get("ttl_s", default))
    if type(value) is not int or not 1 <= value <= MOST_TTL_S:
        raise InvalidOptions(
            f"ttl_s={value!r} is not a whole number of seconds from 1 to {MOST_TTL_S}, or a timedelta"
        )
    return value


def idempotency_key_of(extra: Mapping[str, Any]) -> str:
    """Return a job's idempotency key, "" where it has none."""
    key = extra.get("idempotency_key")
    if key is None:
        return ""
    if not isinstance(key, str) or not _IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidOptions(
            f"idempotency_key={key!r} does not fit; use 1 to 255 visible ASCII characters without spaces"
        )
    return key


class StreamsSettings(Struct, frozen=True, kw_only=True):
    """The settings that this protocol reads from a profile's `extra`."""

    ttl_s: int = 3600
    """How long a job lives that has no time of its own."""
    max_deliveries: int = 3
    """After so many deliveries that nobody finished, a job ends."""
    max_events: int = 10_000
    """About how many entries the shared event log keeps."""
    stranger_idle_ms: int = 300_000
    """How long a foreign worker may be silent, which has no way to renew its claims."""

    @staticmethod
    def of(profile: Profile) -> "StreamsSettings":
        """Return the settings of a profile, with the defaults for the rest."""
        settings = profile.whole_numbers(dict.fromkeys(StreamsSettings.__struct_fields__, MOST_TTL_S))
        # a profile that allows more stalls than our default allows at least as many deliveries
        settings.setdefault("max_deliveries", max(StreamsSettings().max_deliveries, profile.max_stalls + 1))
        return StreamsSettings(**settings)
