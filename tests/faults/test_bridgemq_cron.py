"""Every zone of the tz database, every change of its clocks in ten years, against npm's cron-parser 4.9."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cron_reference import (
    DAY,
    EVERY_HOUR,
    FIXED,
    HOUR,
    Question,
    changes,
    compare,
    distinct,
    unlike,
    zones,
)
from tests.support.node import why_no_node

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1200)]

BATCH = 800
"""Questions to one Node process: it remembers what it has found out about a zone."""


def test_all_zones_fire_as_nodes_cron_parser_does():
    missing = why_no_node()
    if missing:
        pytest.fail(missing, pytrace=False)
    names = zones()
    assert len(names) > 400
    found = [change for zone in names for change in changes(zone)]
    assert len(found) > 2000
    # each zone's own changes are known on both sides, so one zone can speak for those that change alike
    assert unlike(found) == []
    expressions = [(expr, 2 * DAY) for expr in FIXED] + [(expr, 4 * HOUR) for expr in EVERY_HOUR]
    questions = [Question(change, expr, reach) for change in distinct(found) for expr, reach in expressions]
    batches = [questions[start : start + BATCH] for start in range(0, len(questions), BATCH)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(compare, batches))
    wrong = [complaint for complaints, _ in answers for complaint in complaints]
    differing = sum(count for _, count in answers)
    print(
        f"{len(names)} zones, {len(found)} changes, {len(questions)} questions, {differing} answered better"
    )
    assert wrong == []
