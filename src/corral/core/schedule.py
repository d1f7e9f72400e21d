"""Schedules: the rule by which jobs are added repeatedly, and which firings are due after a downtime."""

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import force_setattr

from corral.core.cron import Cron
from corral.core.job import Job

CATCH_UPS = ("skip", "once", "all")
MOST_FIRINGS = 500
"""Firings made up for in one go; the rest comes with the next."""
LATE_MS = 60_000
"""A firing later than this was missed, not delayed: `skip` drops it."""


class ScheduleRule(Struct, frozen=True, kw_only=True):
    """When a schedule fires: by a cron expression, or every so many milliseconds."""

    cron: str | None = None
    timezone: str | None = None
    """Of the cron expression; None: the protocol's usual one."""
    every_ms: int | None = None
    """Milliseconds; may be given as a timedelta."""
    catch_up: str = "once"
    """After a downtime: make up for "all" missed firings, for the last ("once"), or for none ("skip")."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            cron: str | None = ...,
            timezone: str | None = ...,
            every_ms: int | timedelta | None = ...,
            catch_up: str = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.every_ms, timedelta):
            force_setattr(self, "every_ms", self.every_ms // timedelta(milliseconds=1))

    def __str__(self) -> str:
        if self.every_ms is not None:
            return f"every {self.every_ms} ms"
        return f"{self.cron} ({self.timezone})" if self.timezone else str(self.cron)


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule: the job it adds, its rule, and when it fires next (None: paused)."""

    id: str
    job: Job
    next_at: int | None
    rule: ScheduleRule


class Plan(Struct, frozen=True):
    """What a due schedule does now: these firings, and the next time it is due (None: never again)."""

    firings: tuple[int, ...]
    next_due: int | None


def plan(cron: Cron, due: int, now: int, catch_up: str = "once", most: int = MOST_FIRINGS) -> Plan:
    """Return the firings of a schedule that was due at `due` (ms) and is looked at `now`.

    >>> every_minute = Cron.parse("* * * * *")
    >>> plan(every_minute, 60_000, 190_000, "all")
    Plan(firings=(60000, 120000, 180000), next_due=240000)
    >>> plan(every_minute, 60_000, 190_000, "once")
    Plan(firings=(180000,), next_due=240000)
    """
    if catch_up == "all":
        return _every(cron, due, now, most)
    last = cron.last_until(now)
    # the clock may run behind the one that computed `due`
    latest = due if last is None or last < due else last
    is_missed = catch_up == "skip" and now - latest > LATE_MS
    return Plan(() if is_missed else (latest,), cron.next_after(max(latest, now)))


def _every(cron: Cron, due: int, now: int, most: int) -> Plan:
    firings = [due]
    following = cron.next_after(due)
    while following is not None and following <= now and len(firings) < most:
        firings.append(following)
        following = cron.next_after(following)
    return Plan(tuple(firings), following)
