"""Scenarios with producer and worker swapped between Node's BullMQ and the drop-in: every pair does the same.

Each scenario is run by Node alone, which is the reference, and by the three other pairs; what calls return,
what workers tell and every key that is left are compared. All run beside each other, once for all tests of
this file.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dropin.scenarios import SCENARIOS
from tests.dropin.scenarios.comparison import deviations
from tests.dropin.scenarios.pairs import PAIRS, Results, run_all
from tests.support.node import Node
from tests.support.servers import Server

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "bullmq-drop-in.md"
NOTHING_FETCHED = (
    r"theirs \['moveToCompleted', \[\]\], ours \['moveToCompleted', \[None, None, (None, None|0, 0)\]\]"
)
NO_TTL = r"'moveToWait'.* 0\].*ours .*'moveToWait'.* None\]"
DEVIATIONS = {
    "by_hand_completed_and_nothing_fetched": (NOTHING_FETCHED,),
    "deduplicate_and_replace_what_runs": (NOTHING_FETCHED,),
    "flow_across_queues": (NOTHING_FETCHED,),
    "by_hand_moved_to_wait": (NO_TTL,),
    "job_puts_itself_back": (NO_TTL,),
    "scheduler_that_is_removed": (
        r"theirs \['removeJobScheduler', True\], ours \['removeJobScheduler', 0\]",
        r"theirs \['removeJobScheduler', False\], ours \['removeJobScheduler', 1\]",
    ),
    "delay_of_zero": (r"\.opts: theirs .*'delay': 0.*, ours (?!.*'delay')",),
}
"""What differs, as the page says: scenario -> the sentences of the comparison."""
NEXT_AS_READ = r"theirs \['moveTo(Completed|Failed)', \[\{.*'attemptsStarted': .*, ours .*'ats': "
DEVIATIONS_FROM_SIX = {
    **DEVIATIONS,
    "add_what_is_refused": ("2097151.*2097152",),
    "by_hand_completed_and_the_next_fetched": (NEXT_AS_READ,),
    "by_hand_failed_for_good": (NEXT_AS_READ,),
    "by_hand_failed_and_delayed": (
        r"theirs \['moveToFailed', \[\{.*, ours \['moveToFailed', None\]",
        r"theirs \['getNextJob', None\]",
        r"marker: ",
    ),
    "global_concurrency": (NEXT_AS_READ,),
    "events_as_they_are_told": (r"'delay': \d+.*'delay': '\d+'",),
}
REFUSED_BY_SIX = {"deduplicate_by_the_old_name"}

LAST_EVENT_MAY_BE_LATE = {"job_is_rate_limited_by_its_processor", "rate_limit_of_a_queue"}
"""Where nothing shows that a worker has told of the last job's end before it is closed."""

pytestmark = pytest.mark.xdist_group("scenarios")


@pytest.fixture(scope="module", params=[5, pytest.param(6, marks=pytest.mark.faults)], ids="bullmq{}".format)
def generation(request: pytest.FixtureRequest) -> int:
    """The generation of BullMQ: 5.62.0 in `make test`, in `make faults` 6.7.0 too."""
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, valkey: Server, node_process: Callable[[int], Node], generation: int
) -> Results:
    """The runs of all selected scenarios."""
    selected = {item.callspec.params["scenario"] for item in request.session.items
                if item.path == request.path and isinstance(item, pytest.Function)}  # fmt: skip
    given = {"bullmq": generation} if generation == 6 else {}
    return asyncio.run(run_all(sorted(selected), valkey, node_process(generation), **given))


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(name, marks=pytest.mark.faults) if name in LAST_EVENT_MAY_BE_LATE else name
        for name in sorted(SCENARIOS)
    ],
)
def test_every_pair_of_clients_does_the_same(results: Results, generation: int, scenario: str) -> None:
    if generation == 6 and scenario in REFUSED_BY_SIX:
        assert isinstance(results.runs[scenario, "nn"], AssertionError)
        return
    reference = results.of(scenario, "nn")
    found = [
        f"{PAIRS[pair]}: {deviation}"
        for pair in ("nc", "cn", "cc")
        for deviation in deviations(reference, results.of(scenario, pair))
    ]
    known = (DEVIATIONS_FROM_SIX if generation == 6 else DEVIATIONS).get(scenario, ())
    unknown = [each for each in found if not any(re.search(pattern, each) for pattern in known)]
    assert not unknown, "\n".join(unknown)
    assert all(any(re.search(pattern, each) for each in found) for pattern in known), f"not seen: {known}"


@pytest.mark.parametrize("scenario", sorted(DEVIATIONS_FROM_SIX))
def test_the_page_names_the_scenarios_that_show_a_deviation(scenario: str) -> None:
    assert f"`{scenario}`" in PAGE.read_text()
