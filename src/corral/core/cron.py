"""Cron expressions: the next firing in a time zone, across changes of the clock."""

import reprlib
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from corral.core.cron_fields import Fields, parse_fields
from corral.errors import InvalidOptions

NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FARTHEST_YEARS = 50
"""An expression that does not fire for so long never fires."""

_SECOND = timedelta(seconds=1)
_DAY_S = 86_400


class Cron:
    """One expression in one time zone.

    The instants at which it fires are a fixed set. Where hours are restricted, a time that does not exist
    when clocks go forward fires later by the shift (02:30 becomes 03:30), and a time that exists twice when
    they go back fires the first time only. An expression for every hour follows elapsed time instead:
    nothing is shifted, and the repeated hour fires again.

    >>> cron = Cron.parse("30 2 * * *", "Europe/Berlin")
    >>> cron.next_after(1711836000000)  # the evening before clocks went forward in 2024
    1711848600000
    """

    __slots__ = ("_fields", "_follows_elapsed_time", "_zone", "text", "zone")

    def __init__(self, text: str, zone: str, fields: Fields) -> None:
        self.text = text
        self.zone = zone
        self._fields = fields
        from zoneinfo import ZoneInfo

        self._zone = ZoneInfo(zone)
        self._follows_elapsed_time = len(fields.hours) == 24

    @staticmethod
    def parse(text: Any, zone: Any = "UTC") -> "Cron":
        """Return the expression, or raise `InvalidOptions` naming the part that cannot be read."""
        if not isinstance(text, str):
            raise InvalidOptions(f"cron is {reprlib.repr(text)}; use text such as '*/5 * * * *' or '@daily'")
        return _parse(text, check_zone(zone))

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, {self.zone!r})"

    def next_after(self, at: int) -> int | None:
        """Return the first firing later than `at` (ms since the epoch); None: it never fires again."""
        instant = self._next(at // 1000 + 1)
        return None if instant is None else instant * 1000

    def last_until(self, at: int) -> int | None:
        """Return the last firing no later than `at`, as far back as a year; None: there was none.

        It looks back in doubling steps, so that rare and frequent firings cost about the same.
        """
        span = 60_000
        while span < 2 * 366 * _DAY_S * 1000:
            firing = self.next_after(at - span)
            if firing is not None and firing <= at:
                while (later := self.next_after(firing)) is not None and later <= at:
                    firing = later
                return firing
            span *= 2
        return None

    # -- seconds since the epoch, and the offset from UTC in seconds --------------------------------------

    def _offset(self, instant: int) -> int:
        offset = datetime.fromtimestamp(instant, self._zone).utcoffset()
        return 0 if offset is None else int(offset.total_seconds())

    def _change(self, after: int, until: int) -> int | None:
        """Return the first instant after `after`, up to `until`, with another offset."""
        offset = self._offset(after)
        low = after
        while low < until:
            high = min(low + _DAY_S, until)
            if self._offset(high) != offset:
                while high - low > 1:
                    middle = (low + high) // 2
                    if self._offset(middle) == offset:
                        low = middle
                    else:
                        high = middle
                return high
            low = high
        return None

    def _next(self, earliest: int) -> int | None:
        """Return the first firing at `earliest` or later.

        It goes from one change of the clock to the next: in between, local time is UTC plus an offset.
        """
        changed = self._change(earliest - _DAY_S, earliest)
        while True:
            firing = self._between_changes(changed, earliest)
            if firing is None:
                return None
            following = self._change(earliest, firing)
            if following is None:
                return firing
            earliest = changed = following

    def _between_changes(self, changed: int | None, earliest: int) -> int | None:
        """Return the first firing from `earliest` on, by its offset, which began at `changed` if lately."""
        offset = self._offset(earliest)
        before = offset if changed is None else self._offset(changed - 1)
        if changed is None or before == offset or self._follows_elapsed_time:
            return self._matching(earliest, offset)
        moved = offset - before
        if moved < 0:
            # the repeated times do not count
            return self._matching(max(earliest, changed - moved), offset)
        firing = self._matching(earliest, offset)
        # skipped local times are read by the offset from before: later by the shift
        shifted = self._matching(earliest, before) if earliest < changed + moved else None
        if shifted is None or shifted >= changed + moved:
            return firing
        return shifted if firing is None else min(firing, shifted)

    def _matching(self, earliest: int, offset: int) -> int | None:
        local = datetime.fromtimestamp(earliest + offset, UTC).replace(tzinfo=None)
        match = _next_match(self._fields, local)
        return None if match is None else int(match.replace(tzinfo=UTC).timestamp()) - offset


@lru_cache(maxsize=1024)
def _parse(text: str, zone: str) -> Cron:
    expression = text.strip()
    if expression.startswith("@"):
        if expression.lower() not in NAMES:
            raise InvalidOptions(f"cron {text!r} is not known; use {', '.join(NAMES)}, or five or six fields")
        expression = NAMES[expression.lower()]
    return Cron(text, zone, parse_fields(expression))


@lru_cache(maxsize=1024)
def _known_zone(zone: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        return False
    return True


def check_zone(zone: Any) -> str:
    """Return the zone's name, if it is in the tz database.

    >>> check_zone("Europe/Berln")
    Traceback (most recent call last):
    ...
    corral.errors.InvalidOptions: time zone 'Europe/Berln' is not known; did you mean 'Europe/Berlin'?
    """
    way_out = "use a name such as 'Europe/Berlin' or 'UTC'"
    if not isinstance(zone, str) or not zone:
        raise InvalidOptions(f"time zone is {reprlib.repr(zone)}; {way_out}")
    if not _known_zone(zone):
        from zoneinfo import available_timezones

        nearest = get_close_matches(zone, sorted(available_timezones()), n=1)
        way_out = f"did you mean {nearest[0]!r}?" if nearest else way_out
        raise InvalidOptions(f"time zone {zone!r} is not known; {way_out}")
    return zone


# -- the calendar -------------------------------------------------------------------------------------------


def _next_match(fields: Fields, start: datetime) -> datetime | None:
    """Return the first local time at `start` or later that matches."""
    moment = start
    while moment.year <= start.year + FARTHEST_YEARS:
        if moment.month not in fields.months:
            moment = _next_month(moment)
        elif not _day_matches(fields, moment):
            moment = datetime(moment.year, moment.month, moment.day) + timedelta(days=1)
        elif moment.hour not in fields.hours:
            moment = moment.replace(minute=0, second=0) + timedelta(hours=1)
        elif moment.minute not in fields.minutes:
            moment = moment.replace(second=0) + timedelta(minutes=1)
        elif moment.second not in fields.seconds:
            moment += _SECOND
        else:
            return moment
    return None


def _next_month(moment: datetime) -> datetime:
    if moment.month == 12:
        return datetime(moment.year + 1, 1, 1)
    return datetime(moment.year, moment.month + 1, 1)


def _day_matches(fields: Fields, day: datetime) -> bool:
    """Match by day of month, by weekday, or by either where both are restricted."""
    last = monthrange(day.year, day.month)[1]
    weekday = (day.weekday() + 1) % 7
    in_month = day.day in fields.days or (fields.has_last_day and day.day == last)
    in_week = weekday in fields.weekdays or (weekday in fields.last_weekdays and day.day + 7 > last)
    if fields.nth_weekday and (day.day + 6) // 7 != fields.nth_weekday:
        return False
    # a list of days that contains all of this month's restricts nothing
    every_day = len(fields.days) + fields.has_last_day >= (29 if day.month == 2 else last)
    if fields.every_weekday:
        return in_month
    return in_week if every_day else in_month or in_week
