"""Cron expressions: what they mean, when they fire across changes of the clocks, and what is refused."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError, croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.core.cron import NAMES, Cron, check_zone
from corral.core.cron_fields import parse_fields
from corral.core.schedule import LATE_MS, MOST_FIRINGS, Plan, plan
from corral.errors import InvalidOptions
from tests.support.worker_processes import scaled

BERLIN = ZoneInfo("Europe/Berlin")


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    """A moment in UTC."""
    return ms(datetime(year, month, day, hour, minute, second, tzinfo=UTC))


def firings(text: str, zone: str, start: int, end: int) -> list[str]:
    """Local times, with their offset."""
    cron, found, moment = Cron.parse(text, zone), [], start
    while (moment := cron.next_after(moment) or 0) and moment <= end:
        found.append(datetime.fromtimestamp(moment / 1000, ZoneInfo(zone)).strftime("%d %H:%M:%S %z"))
    return found


# -- what expressions mean --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("*/5 * * * *", at(2024, 1, 1, 0, 0), at(2024, 1, 1, 0, 5)),
        ("*/5 * * * *", at(2024, 1, 1, 0, 4, 59), at(2024, 1, 1, 0, 5)),
        ("7/20 * * * *", at(2024, 1, 1, 0, 30), at(2024, 1, 1, 0, 47)),
        ("10-14/2 * * * *", at(2024, 1, 1, 0, 13), at(2024, 1, 1, 0, 14)),
        ("0,30 9-17 * * mon-fri", at(2024, 1, 5, 17, 30), at(2024, 1, 8, 9, 0)),
        ("*/10 * * * * *", at(2024, 1, 1, 0, 0, 55), at(2024, 1, 1, 0, 1, 0)),
        ("30 5 12 * * *", at(2024, 1, 1), at(2024, 1, 1, 12, 5, 30)),
        ("0 0 1 jan,JUL *", at(2024, 1, 1), at(2024, 7, 1)),
        ("0 0 * * 7", at(2024, 1, 1), at(2024, 1, 7)),
        ("0 0 * * 0", at(2024, 1, 1), at(2024, 1, 7)),
        ("0 0 * * 5-7", at(2024, 1, 6), at(2024, 1, 7)),
        ("0 0 13 * fri", at(2024, 1, 1), at(2024, 1, 5)),
        ("0 0 13 * fri", at(2024, 1, 12), at(2024, 1, 13)),
        ("0 0 29 2 *", at(2024, 3, 1), at(2028, 2, 29)),
        ("0 0 L * *", at(2023, 2, 1), at(2023, 2, 28)),
        ("0 0 15,L * *", at(2024, 2, 15), at(2024, 2, 29)),
        ("0 0 * * fri#2", at(2024, 1, 1), at(2024, 1, 12)),
        ("0 0 * * 1#5", at(2024, 1, 29), at(2024, 4, 29)),
        ("0 0 * * 5L", at(2024, 1, 1), at(2024, 1, 26)),
        ("0 0 ? * ?", at(2024, 1, 1), at(2024, 1, 2)),
        ("0 0 31 * *", at(2024, 1, 31), at(2024, 3, 31)),
        ("59 59 23 31 12 *", at(2024, 12, 31, 23, 59, 59), at(2025, 12, 31, 23, 59, 59)),
        ("  0   0  *  * * ", at(2024, 1, 1), at(2024, 1, 2)),
        ("@hourly", at(2024, 1, 1, 0, 1), at(2024, 1, 1, 1)),
        ("@DAILY", at(2024, 1, 1), at(2024, 1, 2)),
        ("@midnight", at(2024, 1, 1), at(2024, 1, 2)),
        ("@weekly", at(2024, 1, 1), at(2024, 1, 7)),
        ("@monthly", at(2024, 1, 1), at(2024, 2, 1)),
        ("@yearly", at(2024, 1, 1), at(2025, 1, 1)),
        ("@annually", at(2024, 1, 1), at(2025, 1, 1)),
    ],
)
def test_the_next_firing(text: str, after: int, expected: int):
    assert Cron.parse(text).next_after(after) == expected


def test_milliseconds_are_past_the_second_they_belong_to():
    cron = Cron.parse("* * * * * *")
    assert cron.next_after(1500) == 2000
    assert cron.next_after(1999) == 2000
    assert cron.next_after(2000) == 3000


def test_a_day_that_exists_only_by_its_weekday_still_fires():
    assert Cron.parse("0 0 30 2 1").next_after(at(2024, 1, 1)) == at(2024, 2, 5), (
        "Mondays in February do come"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 fields; use five"),
        ("* * * *", "has 4 fields; use five"),
        ("* * * * * * *", "has 7 fields; use five"),
        ("60 * * * *", "minute '60' is outside 0..59"),
        ("* 24 * * *", "hour '24' is outside 0..23"),
        ("* * 0 * *", "day of month '0' is outside 1..31"),
        ("* * * 13 *", "month '13' is outside 1..12"),
        ("* * * * 8", "day of week '8' is outside 0..7"),
        ("60 * * * * *", "second '60' is outside 0..59"),
        ("x * * * *", "minute 'x' cannot be read"),
        ("* * * foo *", "month 'foo' cannot be read"),
        ("5-1 * * * *", "minute '5-1' runs backwards"),
        ("*/0 * * * *", "minute '*/0' steps by 0"),
        ("*/x * * * *", "minute '*/x' has no step"),
        ("1,,2 * * * *", "minute '' cannot be read"),
        ("-1 * * * *", "minute '-1' cannot be read"),
        ("1.5 * * * *", "minute '1.5' cannot be read"),
        ("٣ * * * *", "minute '٣' cannot be read"),
        ("* * * * fri#6", "no weekday and its number"),
        ("* * * * mon-fri#2", "no weekday and its number"),
        ("0 0 30 2 *", "day of month '30' does not exist"),
        ("0 0 31 4,6 *", "day of month '31' does not exist"),
        ("@reboot", "is not known; use @yearly"),
        ("@", "is not known; use @yearly"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_way_out(text: str, message: str):
    with pytest.raises(InvalidOptions) as refused:
        Cron.parse(text)
    assert message in str(refused.value)


@pytest.mark.parametrize("text", [None, 5, ["* * * * *"], b"* * * * *"])
def test_a_cron_that_is_no_text_is_refused(text):
    with pytest.raises(InvalidOptions, match="use text such as"):
        Cron.parse(text)


@pytest.mark.parametrize(
    ("zone", "message"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("Mars/Olympus_Mons", "time zone 'Mars/Olympus_Mons' is not known"),
        ("../../etc/passwd", "is not known"),
        ("/etc/localtime", "is not known"),
        ("", "time zone is ''"),
        (None, "time zone is None"),
        (2, "time zone is 2"),
    ],
)
def test_a_zone_that_is_not_known_is_refused(zone, message: str):
    with pytest.raises(InvalidOptions) as refused:
        check_zone(zone)
    assert message in str(refused.value)


def test_every_name_reads_as_its_fields():
    for name, fields in NAMES.items():
        assert Cron.parse(name).next_after(at(2024, 5, 5)) == Cron.parse(fields).next_after(at(2024, 5, 5))


# -- changes of the clocks --------------------------------------------------------------------------------

SPRING = at(2024, 3, 30, 12), at(2024, 4, 1, 12)
AUTUMN = at(2024, 10, 26, 12), at(2024, 10, 28, 12)


def test_a_time_in_the_spring_gap_fires_later_by_as_much():
    assert firings("30 2 * * *", "Europe/Berlin", *SPRING) == ["31 03:30:00 +0200", "01 02:30:00 +0200"]
    assert firings("15,45 2 * * *", "Europe/Berlin", *SPRING)[:2] == [
        "31 03:15:00 +0200",
        "31 03:45:00 +0200",
    ]


def test_a_time_in_the_gap_that_falls_on_another_fires_once():
    assert firings("0 2,3 * * *", "Europe/Berlin", *SPRING)[0] == "31 03:00:00 +0200"
    assert len(firings("0 2,3 * * *", "Europe/Berlin", *SPRING)) == 3


def test_a_time_that_exists_twice_fires_the_first_time_only():
    assert firings("30 2 * * *", "Europe/Berlin", *AUTUMN) == ["27 02:30:00 +0200", "28 02:30:00 +0100"]
    assert firings("*/30 2 * * *", "Europe/Berlin", *AUTUMN)[:3] == [
        "27 02:00:00 +0200",
        "27 02:30:00 +0200",
        "28 02:00:00 +0100",
    ]


def test_every_hour_follows_the_elapsed_time():
    assert firings("30 * * * *", "Europe/Berlin", at(2024, 10, 26, 23), at(2024, 10, 27, 2)) == [
        "27 01:30:00 +0200",
        "27 02:30:00 +0200",
        "27 02:30:00 +0100",
    ]
    assert firings("30 * * * *", "Europe/Berlin", at(2024, 3, 31, 0), at(2024, 3, 31, 2)) == [
        "31 01:30:00 +0100",
        "31 03:30:00 +0200",
    ]


def test_a_gap_at_midnight_a_half_hour_and_two_hours():
    assert firings("0 0 * * *", "America/Havana", at(2020, 3, 7, 12), at(2020, 3, 9, 12)) == [
        "08 01:00:00 -0400",
        "09 00:00:00 -0400",
    ]
    assert firings("15 2 * * *", "Australia/Lord_Howe", at(2020, 10, 3, 0), at(2020, 10, 4, 20)) == [
        "04 02:45:00 +1100",
        "05 02:15:00 +1100",
    ]
    assert firings("30 1 * * *", "Antarctica/Troll", at(2020, 3, 28, 12), at(2020, 3, 29, 12)) == [
        "29 03:30:00 +0200"
    ]


def test_a_repeated_half_hour_and_two_hours_fire_once():
    assert len(firings("45 1 * * *", "Australia/Lord_Howe", at(2020, 4, 4, 0), at(2020, 4, 5, 12))) == 1
    assert len(firings("30 1,2 * * *", "Antarctica/Troll", at(2020, 10, 24, 12), at(2020, 10, 25, 12))) == 2


def test_a_gap_that_ends_the_day_moves_into_the_next():
    """In Nuuk, 23:00 to 24:00 of 2024-03-30 do not exist."""
    assert firings("30 23 * * *", "America/Nuuk", at(2024, 3, 30, 12), at(2024, 3, 31, 12)) == [
        "31 00:30:00 -0100"
    ]


def test_a_rare_firing_is_found_beyond_many_changes():
    expected = ms(datetime(2028, 2, 29, 2, 30, tzinfo=BERLIN))
    assert Cron.parse("30 2 29 2 *", "Europe/Berlin").next_after(at(2024, 3, 1)) == expected


# -- another implementation -------------------------------------------------------------------------------
# npm's cron-parser, in all time zones: tests/faults/test_bridgemq_cron.py


def field(least: int, most: int, is_day: bool = False) -> st.SearchStrategy[str]:
    """A field of an expression: `*`, or a list of numbers, ranges and steps.

    Implementations differ on whether `*/2` restricts the days where the weekday is restricted too.
    """
    number = st.integers(least, most)
    # croniter reads a range of one weekday as the whole week
    ends = st.lists(number, min_size=2, max_size=2, unique=True).map(sorted)
    step = st.integers(1, most - least)
    part = st.one_of(
        number.map(str),
        ends.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.tuples(ends, step).map(lambda both: f"{both[0][0]}-{both[0][1]}/{both[1]}"),
    )
    parts = st.lists(part, min_size=1, max_size=3).map(",".join)
    return st.just("*") | parts if is_day else st.just("*") | step.map(lambda every: f"*/{every}") | parts


EXPRESSIONS = st.tuples(
    field(0, 59), field(0, 23), field(1, 31, is_day=True), field(1, 12), field(0, 6, is_day=True)
).map(" ".join)


def compare_with_croniter(examples: int) -> None:
    """The next firing is the same, or there is none in both."""

    @settings(deadline=None, max_examples=examples)
    @given(EXPRESSIONS, st.integers(at(2020, 1, 1), at(2030, 1, 1)))
    def check(text: str, start: int) -> None:
        try:
            theirs = croniter(text, start / 1000, max_years_between_matches=50).get_next(float) * 1000
        except CroniterBadDateError:
            theirs = None
        assert Cron.parse(text).next_after(start) == theirs

    check()


def test_the_next_firing_is_that_of_croniter() -> None:
    compare_with_croniter(50)


@pytest.mark.faults
def test_the_next_firing_of_very_many_expressions_is_that_of_croniter() -> None:
    compare_with_croniter(scaled(5000, least=50))


# -- the firings are a set --------------------------------------------------------------------------------

TEXTS = st.sampled_from(
    [
        "30 2 * * *",
        "0 0 * * *",
        "*/20 1-3 * * *",
        "0 */6 * * *",
        "15 * * * *",
        "0,59 0,23 * * 0,6",
        "5 30 1 * * *",
    ]
)
ZONES = st.sampled_from(
    ["Europe/Berlin", "America/New_York", "America/Havana", "Asia/Beirut", "Australia/Lord_Howe",
     "Antarctica/Troll", "America/Nuuk", "Africa/Casablanca", "Pacific/Chatham", "UTC", "Asia/Kolkata"]
)  # fmt: skip
CHANGING = st.one_of(
    st.integers(at(2020, 3, 1), at(2020, 4, 15)), st.integers(at(2020, 9, 20), at(2020, 11, 10)),
    st.integers(at(2024, 3, 28), at(2024, 4, 2)), st.integers(at(2015, 1, 1), at(2030, 1, 1)),
)  # fmt: skip


@settings(deadline=None)
@given(TEXTS, ZONES, CHANGING, st.integers(1, 3 * 86_400_000))
def test_the_next_firing_does_not_depend_on_who_asks_when(text: str, zone: str, start: int, later: int):
    cron = Cron.parse(text, zone)
    following = cron.next_after(start)
    assert following is not None
    assert following > start
    if start + later < following:
        assert cron.next_after(start + later) == following
    assert cron.next_after(following - 1) == following


def brute_force(text: str, zone: str, start: int, end: int) -> list[int]:
    """Every minute of a stretch, by the definition: clocks show the time for the first time, or should."""
    fields, info = parse_fields(text), ZoneInfo(zone)
    every_hour = len(fields.hours) == 24
    found = set()

    def matches(local: datetime) -> bool:
        weekday = (local.weekday() + 1) % 7
        return (
            local.minute in fields.minutes and local.hour in fields.hours
            and local.day in fields.days and local.month in fields.months and weekday in fields.weekdays
        )  # fmt: skip

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(info).utcoffset() or timedelta()

    moment = datetime.fromtimestamp(start // 60_000 * 60, UTC)
    while ms(moment) <= end:
        local = moment.astimezone(info)
        is_second = local.fold == 1
        if matches(local) and (every_hour or not is_second):
            found.add(ms(moment))
        # a time that clocks leave out is read by the offset from before they were changed
        for hours in (0.5, 1, 2):
            before = offset(moment - timedelta(hours=hours))
            skipped = (moment + before).replace(tzinfo=None)
            is_left_out = skipped != skipped.replace(tzinfo=info).astimezone(UTC).astimezone(info).replace(
                tzinfo=None
            )
            if before < offset(moment) and is_left_out and not every_hour and matches(skipped):
                found.add(ms(moment))
        moment += timedelta(minutes=1)
    return sorted(one for one in found if start < one <= end)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(
        ["30 2 * * *", "0 0 * * *", "*/20 1-3 * * *", "15 * * * *", "45 1,23 * * *", "0 */4 * * 0,1,6"]
    ),
    st.sampled_from(
        [
            ("Europe/Berlin", at(2024, 3, 31, 1)), ("Europe/Berlin", at(2024, 10, 27, 1)),
            ("America/Havana", at(2020, 3, 8, 5)), ("America/Havana", at(2020, 11, 1, 5)),
            ("Australia/Lord_Howe", at(2020, 10, 3, 15, 30)), ("Australia/Lord_Howe", at(2020, 4, 4, 15)),
            ("Antarctica/Troll", at(2020, 3, 29, 1)), ("Antarctica/Troll", at(2020, 10, 25, 1)),
            ("America/Nuuk", at(2024, 3, 31, 1)), ("Asia/Beirut", at(2020, 10, 24, 21)),
            ("Africa/Casablanca", at(2020, 5, 31, 2)), ("Pacific/Chatham", at(2020, 9, 26, 14)),
        ]
    ),
)  # fmt: skip
def test_the_firings_are_those_of_the_definition(text: str, where: tuple[str, int]):
    zone, change = where
    start, end = change - 20 * 3_600_000, change + 20 * 3_600_000
    cron, found, moment = Cron.parse(text, zone), [], start
    while (moment := cron.next_after(moment) or 0) and moment <= end:
        found.append(moment)
    assert found == brute_force(text, zone, start, end)


@settings(deadline=None)
@given(TEXTS, ZONES, CHANGING)
def test_the_last_firing_until_now_is_the_one_before_the_next(text: str, zone: str, now: int):
    cron = Cron.parse(text, zone)
    last = cron.last_until(now)
    assert last is not None
    assert last <= now
    following = cron.next_after(last)
    assert following is not None
    assert following > now


def test_there_is_no_last_firing_where_none_was_for_years():
    assert Cron.parse("0 0 29 2 *").last_until(at(2027, 6, 1)) is None


# -- catching up ------------------------------------------------------------------------------------------

MINUTELY = Cron.parse("* * * * *")
M = 60_000


@pytest.mark.parametrize(
    ("catch_up", "now", "expected"),
    [
        ("all", 10 * M, Plan((10 * M,), 11 * M)),
        ("all", 13 * M + 5, Plan((10 * M, 11 * M, 12 * M, 13 * M), 14 * M)),
        ("once", 10 * M, Plan((10 * M,), 11 * M)),
        ("once", 13 * M + 5, Plan((13 * M,), 14 * M)),
        ("skip", 10 * M + 5, Plan((10 * M,), 11 * M)),
        ("skip", 13 * M + 5, Plan((13 * M,), 14 * M)),
    ],
)
def test_what_a_minutely_schedule_owes(catch_up: str, now: int, expected: Plan):
    assert plan(MINUTELY, 10 * M, now, catch_up) == expected


def test_skip_lets_a_late_firing_go():
    hourly = Cron.parse("@hourly")
    assert plan(hourly, 60 * M, 60 * M + LATE_MS, "skip") == Plan((60 * M,), 120 * M)
    assert plan(hourly, 60 * M, 60 * M + LATE_MS + 1, "skip") == Plan((), 120 * M)
    assert plan(hourly, 60 * M, 60 * M + LATE_MS + 1, "once") == Plan((60 * M,), 120 * M)


def test_all_is_made_up_for_in_bounded_goes():
    first = plan(MINUTELY, M, 10_000 * M, "all")
    assert (len(first.firings), first.next_due) == (MOST_FIRINGS, (MOST_FIRINGS + 1) * M)
    second = plan(MINUTELY, first.next_due or 0, 10_000 * M, "all", most=3)
    assert second.firings[0] == first.next_due
    assert len(second.firings) == 3


def test_a_schedule_whose_last_time_is_past_is_due_no_more():
    assert plan(Cron.parse("0 0 1 1 *"), at(2024, 1, 1), at(2024, 1, 1), "once").next_due == at(2025, 1, 1)


@settings(deadline=None)
@given(TEXTS, ZONES, CHANGING, st.lists(st.integers(1, 3 * 86_400_000), min_size=1, max_size=8))
def test_however_often_it_is_looked_at_all_fires_each_time_once(
    text: str, zone: str, start: int, steps: list[int]
):
    cron = Cron.parse(text, zone)
    due, now, made = cron.next_after(start), start, []
    for step in steps:
        now += step
        while due is not None and due <= now:
            owed = plan(cron, due, now, "all", most=7)
            made += owed.firings
            due = owed.next_due
    expected, moment = [], cron.next_after(start)
    while moment is not None and moment <= now:
        expected.append(moment)
        moment = cron.next_after(moment)
    assert made == expected
