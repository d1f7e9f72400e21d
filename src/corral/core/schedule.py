"""What a schedule owes: which firings are made up for after a downtime, and when it fires next."""

from msgspec import Struct

from corral.core.cron import Cron

CATCH_UPS = ("skip", "once", "all")
MOST_FIRINGS = 500
"""Firings made up for in one go; the rest comes with the next."""
LATE_MS = 60_000
"""A firing later than this was missed, not delayed: `skip` lets it go."""


class Plan(Struct, frozen=True):
    """What a due schedule does now: these firings, and the next time it is due (None: never again)."""

    firings: tuple[int, ...]
    next_due: int | None


def plan(cron: Cron, due: int, now: int, catch_up: str = "once", most: int = MOST_FIRINGS) -> Plan:
    """What becomes of a schedule that was due at `due` (ms), looked at `now`.

    `all` makes up for every missed firing, `once` for the last of them, `skip` for none: it fires only
    what is not late.

    >>> every_minute = Cron.parse("* * * * *")
    >>> plan(every_minute, 60_000, 190_000, "all")
    Plan(firings=(60000, 120000, 180000), next_due=240000)
    >>> plan(every_minute, 60_000, 190_000, "once")
    Plan(firings=(180000,), next_due=240000)
    """
    if catch_up == "all":
        return _every(cron, due, now, most)
    last = cron.last_until(now)
    # the clock may run behind the one that said when this is due
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
