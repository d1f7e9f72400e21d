"""What the BridgeMQ document knows of options: those of jobs (target, rate, cron …), and of its workers."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from corral.core.cron import Cron
from corral.core.job import JobOptions
from corral.core.options import Capability, Lack, require
from corral.core.ports import Profile
from corral.core.routing import Identity, check_identity, check_target, write_target
from corral.core.schedule import CATCH_UPS
from corral.errors import InvalidOptions, short_repr
from corral.protocols.bridgemq.keys import NAME, check_server_id

CAPABILITIES = frozenset(
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
        Capability.UNIQUE,
        Capability.GROUPS,
    }
)
OPTIONS = {
    "target": "Which workers may run it: server, stack, capabilities, region",
    "rate": "Limits of its job type: concurrent, per_minute",
    "keep_data": "Keep its data as long as its result",
    "cron": "Add it repeatedly by this cron expression",
    "timezone": "The time zone of cron",
    "catch_up": "After a downtime: skip, once or all of the missed firings",
}
"""The options only this protocol knows, with their help texts."""
UNGROUPED = ("target", "rate", "cron")
"""Those that a job in a group cannot have: all workers of the queue serve the groups in turn."""
LACKS = {
    "update": Lack("changes of a job", "remove it, and add another"),
    "limits": Lack("limits of a queue", "limit a job type by the option rate={'concurrent': …}"),
    "obliterate": Lack("keys of a single queue", "drain and clean it, and remove its schedules"),
    "flows": Lack("flows", "use a protocol that has it"),
}

DAY_S = 86_400
MOST_S = 2_147_483_647
MOST_LIMIT = 2**31
RATES = {"concurrent": "maxConcurrent", "per_minute": "maxPerMinute"}
"""Our words for the two limits, and the wire's."""
RATES_ON_WIRE = {"maxConcurrent": "concurrent", "maxPerMinute": "per_minute", "perMinute": "per_minute"}


class BridgemqOptions(Struct, frozen=True, kw_only=True):
    """The options only this protocol knows, checked, in the wire's words."""

    target: dict[str, Any] = {}
    rate: dict[str, int] = {}
    keep_data: bool = False
    cron: Cron | None = None
    schedule: dict[str, Any] | None = None
    next_fire: int = 0


def parse_options(extra: Mapping[str, Any], now: int) -> BridgemqOptions:
    """Return the options only this protocol knows; refused where one makes no sense."""
    unknown = sorted(extra.keys() - OPTIONS.keys())
    if unknown:
        raise InvalidOptions(
            f"protocol {NAME!r} does not know the option {unknown[0]!r}; it has {', '.join(sorted(OPTIONS))}"
        )
    keep_data = extra.get("keep_data")
    if keep_data is not None and not isinstance(keep_data, bool):
        raise InvalidOptions(f"keep_data is {short_repr(keep_data)}; use True or False")
    cron, schedule, next_fire = _parse_schedule(extra, now)
    return BridgemqOptions(
        target=write_target(check_target(extra.get("target"))),
        rate=_parse_rate(extra.get("rate")),
        keep_data=bool(keep_data),
        cron=cron,
        schedule=schedule,
        next_fire=next_fire,
    )


def check_options(options: JobOptions, now: int) -> None:
    """Refuse options that this protocol could not keep, before a job has them."""
    own = parse_options(options.extra, now)
    check_group(options)
    if own.cron is not None and options.delay:
        raise InvalidOptions(f"cron {own.cron.text!r} and delay={options.delay}: give one of them")


def check_group(options: JobOptions) -> None:
    """Refuse options that a job in a group cannot have."""
    if options.group is None:
        return
    for name in UNGROUPED:
        if options.extra.get(name) is not None:
            value = short_repr(options.extra[name])
            raise InvalidOptions(f"group={options.group!r} and {name}={value}: leave one out")


def check_shared(options: JobOptions) -> None:
    """Refuse options of all protocols that the document has no word for, or not beside the others."""
    check_group(options)
    refused = (
        (options.lifo, Capability.LIFO, "lifo=True"),
        (options.keep_completed is not None, Capability.REMOVAL, f"keep_completed={options.keep_completed}"),
        (options.keep_dead is not None, Capability.REMOVAL, f"keep_dead={options.keep_dead}"),
    )
    for is_refused, capability, option in refused:
        if is_refused:
            require(NAME, CAPABILITIES, capability, option)


def _parse_schedule(extra: Mapping[str, Any], now: int) -> tuple[Cron | None, dict[str, Any] | None, int]:
    if extra.get("cron") is None:
        for name in ("timezone", "catch_up"):
            if extra.get(name) is not None:
                raise InvalidOptions(
                    f"{name}={short_repr(extra[name])} needs a cron; give one, or leave it out"
                )
        return None, None, 0
    zone = extra.get("timezone") or "UTC"
    catch_up = extra.get("catch_up") or "once"
    if catch_up not in CATCH_UPS:
        raise InvalidOptions(f"catch_up is {short_repr(catch_up)}; use {', '.join(map(repr, CATCH_UPS))}")
    cron = Cron.parse(extra["cron"], zone)
    next_fire = cron.next_after(now)
    if next_fire is None:
        raise InvalidOptions(f"cron {cron.text!r} never fires; name a day that exists")
    return cron, {"cron": cron.text, "timezone": zone, "catchUp": catch_up}, next_fire


def _parse_rate(value: Any) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidOptions(
            f"rate is {short_repr(value)}; use a dict such as {{'concurrent': 3, 'per_minute': 100}}"
        )
    rate = {}
    for name, most in value.items():
        if name not in RATES:
            raise InvalidOptions(f"rate has {short_repr(name)}; use {', '.join(map(repr, RATES))}")
        if most is None:
            continue
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_LIMIT:
            raise InvalidOptions(f"rate {name} is {short_repr(most)}; use a whole number from 1")
        rate[RATES[name]] = most
    return rate


def decode_options(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same options from a job's JSON, in our words; what cannot be read is left out."""
    extra: dict[str, Any] = {}
    if isinstance(wire.get("target"), dict) and wire["target"]:
        extra["target"] = wire["target"]
    rate = wire.get("rateLimit")
    if isinstance(rate, dict) and rate:
        extra["rate"] = {RATES_ON_WIRE.get(name, name): most for name, most in rate.items()}
    if wire.get("keepData") is True:
        extra["keep_data"] = True
    schedule = wire.get("schedule")
    if isinstance(schedule, dict) and isinstance(schedule.get("cron"), str):
        extra["cron"] = schedule["cron"]
        for name, word in (("timezone", "timezone"), ("catch_up", "catchUp")):
            if isinstance(schedule.get(word), str):
                extra[name] = schedule[word]
    return extra


class BridgemqSettings(Struct, frozen=True, kw_only=True):
    """The settings that this protocol reads from a profile: the worker's identity, and lifetimes."""

    identity: Identity
    heartbeat_ms: int = 30_000
    """A worker without a heartbeat for so long is dead."""
    beat_ms: int = 0
    """Between two heartbeats; 0: a third of `heartbeat_ms`."""
    result_s: int = DAY_S
    max_events: int = 10_000
    """About how many entries the event stream keeps."""
    scan: int = 100
    """Jobs of others that a claim looks at, at the head and behind its cursor."""

    @staticmethod
    def of(profile: Profile) -> "BridgemqSettings":
        """Return the settings of a profile, with the defaults for the rest."""
        extra = profile.extra
        identity = check_identity(
            check_server_id(extra.get("server_id") or profile.name),
            extra.get("stack") or ("python",),
            extra.get("capabilities") or (),
            extra.get("region") or (),
        )
        limits = {
            "heartbeat_ms": MOST_S,
            "beat_ms": MOST_S,
            "result_s": MOST_S,
            "max_events": MOST_S,
            "scan": 1000,
        }
        settings = BridgemqSettings(identity=identity, **profile.whole_numbers(limits))
        if settings.beat_every_ms * 2 > settings.heartbeat_ms:
            raise InvalidOptions(
                f"beat_ms={settings.beat_ms} is more than half of heartbeat_ms={settings.heartbeat_ms}: one "
                f"late heartbeat, and a worker counts as dead; beat more often"
            )
        return settings

    @property
    def beat_every_ms(self) -> int:
        """How often a worker beats."""
        return self.beat_ms or self.heartbeat_ms // 3

    @property
    def sweep_every_ms(self) -> int:
        """How often the leader looks for dead workers."""
        return self.heartbeat_ms // 6
