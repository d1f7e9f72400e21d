"""What only this protocol lets a producer ask for (target, rate, cron …) and asks of its workers."""

import reprlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from corral.core.cron import Cron
from corral.core.job import JobOptions
from corral.core.options import Capability
from corral.core.ports import Profile
from corral.core.routing import Identity, check_identity, check_target, write_target
from corral.core.schedule import CATCH_UPS
from corral.errors import InvalidOptions
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
"""Options only this contract knows, with their help texts."""

DAY_S = 86_400
MOST_S = 2_147_483_647
MOST_LIMIT = 2**31
MOST = {"heartbeat_ms": MOST_S, "result_s": MOST_S, "max_events": MOST_S, "scan": 1000}
"""What a worker's profile may say besides who it is, each from 1 on."""
RATES = {"concurrent": "maxConcurrent", "per_minute": "maxPerMinute"}
"""Our words for the two limits, and the wire's."""
READ_AS = {"maxConcurrent": "concurrent", "maxPerMinute": "per_minute", "perMinute": "per_minute"}


class Wanted(Struct, frozen=True, kw_only=True):
    """What a job asks of this protocol, checked, in the wire's words."""

    target: dict[str, Any] = {}
    rate: dict[str, int] = {}
    keep_data: bool = False
    cron: Cron | None = None
    schedule: dict[str, Any] | None = None
    next_fire: int = 0


def wanted(extra: Mapping[str, Any], now: int) -> Wanted:
    """The options only this protocol knows; refused where one makes no sense."""
    unknown = sorted(extra.keys() - OPTIONS.keys())
    if unknown:
        raise InvalidOptions(
            f"protocol {NAME!r} does not know the option {unknown[0]!r}; it has {', '.join(sorted(OPTIONS))}"
        )
    keep_data = extra.get("keep_data")
    if keep_data is not None and not isinstance(keep_data, bool):
        raise InvalidOptions(f"keep_data is {reprlib.repr(keep_data)}; use True or False")
    checked = Wanted(
        target=write_target(check_target(extra.get("target"))),
        rate=_rate(extra.get("rate")),
        keep_data=bool(keep_data),
    )
    return _scheduled(checked, extra, now) if extra.get("cron") is not None else _unscheduled(checked, extra)


def check_options(options: JobOptions, now: int) -> None:
    """Refuse what this protocol could not keep, before there is a job that asks for it."""
    asked = wanted(options.extra, now)
    if asked.cron is not None and options.delay:
        raise InvalidOptions(f"cron {asked.cron.text!r} and delay={options.delay}: give one of them")


def _scheduled(checked: Wanted, extra: Mapping[str, Any], now: int) -> Wanted:
    zone = extra.get("timezone") or "UTC"
    catch_up = extra.get("catch_up") or "once"
    if catch_up not in CATCH_UPS:
        raise InvalidOptions(f"catch_up is {reprlib.repr(catch_up)}; use {', '.join(map(repr, CATCH_UPS))}")
    cron = Cron.parse(extra["cron"], zone)
    next_fire = cron.next_after(now)
    if next_fire is None:
        raise InvalidOptions(f"cron {cron.text!r} never fires; name a day that exists")
    schedule = {"cron": cron.text, "timezone": zone, "catchUp": catch_up}
    return Wanted(
        target=checked.target, rate=checked.rate, keep_data=checked.keep_data,
        cron=cron, schedule=schedule, next_fire=next_fire,
    )  # fmt: skip


def _unscheduled(checked: Wanted, extra: Mapping[str, Any]) -> Wanted:
    for name in ("timezone", "catch_up"):
        if extra.get(name) is not None:
            asked = f"{name}={reprlib.repr(extra[name])}"
            raise InvalidOptions(f"{asked} needs a cron; give one, or leave it out")
    return checked


def _rate(value: Any) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidOptions(
            f"rate is {reprlib.repr(value)}; use a dict such as {{'concurrent': 3, 'per_minute': 100}}"
        )
    rate = {}
    for name, most in value.items():
        if name not in RATES:
            raise InvalidOptions(f"rate has {reprlib.repr(name)}; use {', '.join(map(repr, RATES))}")
        if most is None:
            continue
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_LIMIT:
            raise InvalidOptions(f"rate {name} is {reprlib.repr(most)}; use a whole number from 1")
        rate[RATES[name]] = most
    return rate


def read_wanted(wire: Mapping[str, Any]) -> dict[str, Any]:
    """The same options as they stand in a job's JSON, in our words; what cannot be read is left out."""
    extra: dict[str, Any] = {}
    if isinstance(wire.get("target"), dict) and wire["target"]:
        extra["target"] = wire["target"]
    rate = wire.get("rateLimit")
    if isinstance(rate, dict):
        limits = {READ_AS.get(name, name): most for name, most in rate.items()}
        extra |= {"rate": limits} if limits else {}
    if wire.get("keepData") is True:
        extra["keep_data"] = True
    schedule = wire.get("schedule")
    if isinstance(schedule, dict) and isinstance(schedule.get("cron"), str):
        extra["cron"] = schedule["cron"]
        for name, word in (("timezone", "timezone"), ("catch_up", "catchUp")):
            if isinstance(schedule.get(word), str):
                extra[name] = schedule[word]
    return extra


# -- workers ------------------------------------------------------------------------------------------------


class Settings(Struct, frozen=True, kw_only=True):
    """What this protocol asks of a profile: who the worker is, and how long things are kept."""

    identity: Identity
    heartbeat_ms: int = 30_000
    """A worker that has not been heard of for so long is dead."""
    result_s: int = DAY_S
    max_events: int = 10_000
    """About how many entries the event stream keeps."""
    scan: int = 100
    """Jobs of others that a claim looks at, in each of its two places."""

    @staticmethod
    def of(profile: Profile) -> "Settings":
        """The settings of a profile; what it does not name is as above."""
        extra = profile.extra
        identity = check_identity(
            check_server_id(extra.get("server_id") or profile.name),
            extra.get("stack") or ("python",),
            extra.get("capabilities") or (),
            extra.get("region") or (),
        )
        given = {name: extra[name] for name in MOST if name in extra}
        for name, value in given.items():
            if type(value) is not int or not 1 <= value <= MOST[name]:
                raise InvalidOptions(f"{name}={value!r} is not a whole number from 1 to {MOST[name]}")
        return Settings(identity=identity, **given)

    @property
    def beat_every_ms(self) -> int:
        """How often a living worker says so."""
        return self.heartbeat_ms // 3

    @property
    def sweep_every_ms(self) -> int:
        """How often the leader looks for dead workers."""
        return self.heartbeat_ms // 6
