"""A sample of zones against npm's cron-parser 4.9; `make faults` asks for all of them."""

import pytest

from corral.core.cron import Cron
from tests.support.cron_reference import FIXED, HOUR, Question, changes, compare
from tests.support.node import why_no_node

SAMPLE = (
    "Africa/Cairo", "Africa/Casablanca", "America/Asuncion", "America/Havana", "America/New_York",
    "America/Nuuk", "America/Santiago", "America/St_Johns", "Antarctica/Troll", "Asia/Beirut", "Asia/Tehran",
    "Asia/Gaza", "Atlantic/Azores", "Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin",
    "Europe/Dublin", "Europe/London", "Pacific/Apia", "Pacific/Chatham",
)  # fmt: skip


def test_twenty_zones_fire_as_nodes_cron_parser_does():
    missing = why_no_node()
    if missing:
        pytest.fail(missing, pytrace=False)
    questions = []
    for n, zone in enumerate(SAMPLE):
        found = list(changes(zone))
        assert found, f"{zone} changed its clocks in those years"
        for change in found[n % 3 : n % 3 + 2]:
            questions += [Question(change, FIXED[(n + k) % 2 * 2], 30 * HOUR) for k in range(2)]
    wrong, differing = compare(questions)
    assert wrong == []
    assert differing < len(questions) / 4


def test_where_the_reference_loses_a_firing_ours_comes_at_the_end_of_the_gap():
    """Midnight does not exist in Cairo on 2023-04-28, nor 02:30 in Troll on 2020-03-29."""
    midnight = Cron.parse("0 0 * * *", "Africa/Cairo")
    assert midnight.next_after(1_682_600_000_000) == 1_682_632_800_000  # 01:00 summer time
    troll = Cron.parse("30 2 * * *", "Antarctica/Troll")
    assert troll.next_after(1_585_440_000_000) == 1_585_449_000_000  # 04:30 summer time
