"""`corral lake capacity`: the simulation beside closed forms, and plans from lakes whose load is known."""

import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path

import pytest
from bench.publish import published_costs

from corral.core.ports import Limit
from corral.errors import InvalidOptions
from corral.spark.lake.capacity.history import queue_history
from corral.spark.lake.capacity.scale import measured_costs
from corral.spark.lake.capacity.simulation import (
    Fleet,
    Outage,
    QueueRules,
    SimulatedJob,
    SimulatedRun,
    TripCosts,
    simulate,
)
from corral.spark.lake.tables import Lake
from tests.docs.pages import Page
from tests.docs.pages import _compare as compare
from tests.spark.history_lake import MONDAY, attempt, history_lake, poisson
from tests.support.shell import Said, corral

DOCS = Path(__file__).resolve().parents[2] / "docs"
MEAN_MS = 50.0


def random_jobs(count: int, slots: int, busy: float, seed: int = 11) -> list[SimulatedJob]:
    draw, at, jobs = random.Random(seed), 0.0, []
    for _ in range(count):
        at += draw.expovariate(busy * slots / MEAN_MS)
        jobs.append(SimulatedJob(at, (SimulatedRun(draw.expovariate(1 / MEAN_MS)),)))
    return jobs


def erlang_c(slots: int, busy: float) -> float:
    """The share of arrivals that wait in M/M/c."""
    offered, blocking = busy * slots, 1.0
    for number in range(1, slots + 1):
        blocking = offered * blocking / (number + offered * blocking)
    return blocking / (1 - busy * (1 - blocking))


# -- the simulation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "slots", "busy"), [(1, 1, 0.6), (1, 4, 0.75), (2, 4, 0.75), (4, 12, 0.7)]
)
def test_waits_without_costs_are_those_of_m_m_c(workers: int, slots: int, busy: float) -> None:
    jobs = random_jobs(10_000, slots, busy)
    result = simulate(jobs, Fleet(workers, slots))
    simulated = [wait for _, wait, _ in result.claimed]
    free, exact = [0.0] * slots, []
    for job in jobs:
        start = max(heappop(free), job.at)
        exact.append(start - job.at)
        heappush(free, start + job.runs[0].handler_ms)
    assert sorted(simulated) == pytest.approx(sorted(exact)), "the same draws in a queue with so many servers"
    share, rate = erlang_c(slots, busy), slots * (1 - busy) / MEAN_MS
    assert sum(wait > 1e-9 for wait in simulated) / len(jobs) == pytest.approx(share, rel=0.1)
    assert sum(simulated) / len(jobs) == pytest.approx(share / rate, rel=0.1)
    p95 = max(math.log(share / 0.05) / rate, 0)
    assert result.wait(0.95) == pytest.approx(p95, rel=0.1)


def test_jobs_without_a_priority_come_first_and_then_the_lowest_number() -> None:
    run = (SimulatedRun(10),)
    jobs = [SimulatedJob(0, run), *(SimulatedJob(1, run, priority) for priority in (3, 1, 0, 2))]
    claimed = simulate(jobs, Fleet(1, 1)).claimed
    assert [priority for _, _, priority in claimed] == [0, 0, 1, 2, 3]


def test_a_failed_attempt_comes_again_after_its_delay_and_takes_a_slot_again() -> None:
    job = SimulatedJob(0, (SimulatedRun(10, 100), SimulatedRun(5, 200), SimulatedRun(1)))
    claimed = simulate([job], Fleet(1, 1)).claimed
    assert [(at, wait) for at, wait, _ in claimed] == [(0, 0), (110, 0), (315, 0)]


def test_a_rate_limit_holds_claims_until_its_window_ends() -> None:
    jobs = [SimulatedJob(0, (SimulatedRun(1),)) for _ in range(5)]
    result = simulate(jobs, Fleet(2, 10), rules=QueueRules(Limit(2, 1000)))
    assert [at for at, _, _ in result.claimed] == [0, 0, 1000, 1000, 2000]


def test_no_more_jobs_run_at_once_than_the_queue_allows() -> None:
    jobs = [SimulatedJob(0, (SimulatedRun(10),)) for _ in range(6)]
    result = simulate(jobs, Fleet(3, 9), rules=QueueRules(max_active=2))
    assert [at for at, _, _ in result.claimed] == [0, 0, 10, 10, 20, 20]


def test_a_trip_settles_and_claims_so_a_slot_waits_for_one_trip_between_jobs() -> None:
    jobs = [SimulatedJob(0, (SimulatedRun(20),)) for _ in range(3)]
    claimed = [at for at, _, _ in simulate(jobs, Fleet(1, 1), TripCosts(trip_ms=4)).claimed]
    assert [later - at for at, later in pairwise(claimed)] == [24, 24]


def test_what_ends_while_two_trips_are_under_way_is_settled_by_the_next() -> None:
    """16 handlers that end one after the other, each within the trip before: not 16 trips of 10 ms."""
    jobs = [SimulatedJob(0, (SimulatedRun(50 + number),)) for number in range(16)] * 2
    result = simulate(jobs, Fleet(1, 16), TripCosts(trip_ms=10))
    assert result.ended_at < 50 + 16 + 10 + 50 + 16 + 4 * 10


def test_a_worker_with_slow_handlers_claims_32_in_a_trip() -> None:
    jobs = [SimulatedJob(0, (SimulatedRun(1000),)) for _ in range(50)]
    claimed = [at for at, _, _ in simulate(jobs, Fleet(1, 50), TripCosts(trip_ms=2)).claimed]
    assert len(set(claimed)) == 2
    assert claimed.count(claimed[0]) == 32


def test_in_an_outage_nothing_is_claimed_and_workers_come_back_by_their_backoff() -> None:
    jobs = random_jobs(2000, 4, 0.5)
    outage = Outage(jobs[-1].at / 2, 3000)
    result = simulate(jobs, Fleet(2, 4), TripCosts(trip_ms=1), outage=outage)
    assert len(result.claimed) == 2000
    assert not [at for at, _, _ in result.claimed if outage.at < at < outage.end]
    assert result.worst < outage.duration + 6400, "jobs that were added in the outage come at its end"
    recovered = result.recovered_at(outage.end, 100) - outage.end
    assert 0 < recovered < 10_000


def test_the_servers_and_the_workers_own_time_bound_the_rate() -> None:
    jobs = [SimulatedJob(0, (SimulatedRun(0),)) for _ in range(2000)]
    costs = TripCosts(trip_ms=0.1, server_job_ms=0.5, worker_job_ms=0.1)
    assert simulate(jobs, Fleet(4, 400), costs).ended_at == pytest.approx(1000, rel=0.05)
    costs = TripCosts(trip_ms=0.1, server_job_ms=0.1, worker_job_ms=0.5)
    assert simulate(jobs, Fleet(1, 100), costs).ended_at == pytest.approx(1000, rel=0.05)


# -- plans --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Tuesday 09:00 of two weeks is the peak: 4 jobs/s of 500 ms; Wednesday has a quarter of it."""
    hours = {33: 4.0, 33 + 168: 3.0, 57: 1.0}
    rows = [
        row
        for hour, rate in hours.items()
        for row in poisson(400, rate, 500, MONDAY + timedelta(hours=hour), seed=hour)
    ]
    rows = [row | {"job_id": str(number)} for number, row in enumerate(rows)]
    few = [attempt(number, MONDAY, 10, queue="few") for number in range(7)]
    both = [attempt(1, MONDAY, 10, queue="both", protocol=protocol) for protocol in ("bullmq", "streams")]
    return history_lake(tmp_path_factory.mktemp("capacity") / "lake", [*rows, *few, *both])


Capacity = Callable[..., Said]


@pytest.fixture
def capacity(lake: Lake) -> Capacity:
    return lambda *words: corral("lake", "capacity", lake.path, *words)


def test_the_history_has_arrivals_and_work_by_hour_of_the_week(lake: Lake) -> None:
    history = queue_history(lake, "mail")
    assert [hour.name for hour in history.hours] == ["Tue 09:00", "Wed 09:00"]
    tuesday, wednesday = history.hours
    assert (tuesday.jobs, wednesday.jobs) == (400, 400)
    assert tuesday.busiest_hour == MONDAY.timestamp() // 3600 + 33
    assert tuesday.busiest_slots == pytest.approx(400 * 0.5 / 3600, rel=0.1)
    assert (history.jobs, history.attempts, history.events_per_job) == (1200, 1200, 4)
    assert history.mean_ms == pytest.approx(500, rel=0.1)
    assert len(history.arrivals[33]) == 400
    assert history.arrivals[33][0].at == 0


def test_attempts_of_one_job_are_retries_with_the_delays_that_were_seen(tmp_path: Path) -> None:
    rows = []
    for number in range(60):
        first = attempt(number, MONDAY + timedelta(seconds=number), 100, outcome="retry")
        rows += [first, attempt(number, first["ended_at"] + timedelta(milliseconds=750), 40, attempt=2)]
    history = queue_history(history_lake(tmp_path / "lake", rows), "mail", priorities={"send": 3})
    [runs] = {job.runs for job in history.arrivals[0]}
    assert runs == (SimulatedRun(100.0, 750), SimulatedRun(40.0, None))
    assert {job.priority for job in history.arrivals[0]} == {3}
    assert (history.jobs, history.attempts) == (60, 120)


def test_the_fewest_slots_that_keep_the_target_are_found_for_each_case(capacity: Capacity) -> None:
    words = ("--queue", "mail", "--target-wait-p95", "200ms", "--concurrency", "2")
    [plan] = capacity(*words, "--load", "2", "--slower", "1.5", "--failover", "10s", "--json").documents
    needs = {one["title"]: one["prediction"]["slots"] for one in plan["scenarios"]}
    # 2 slots are busy on average; 4, 3 and 6 with the changes
    assert needs["as seen"] in (4, 5)
    assert needs["a failover of 10 s"] == needs["as seen"]
    assert needs["as seen"] < needs["handlers 1.5 times as slow"] < needs["2 times the load"]
    assert needs["2 times the load"] < needs["all of these"] < 14
    assert all(hour["p95_ms"] <= 200 for hour in plan["hours"])
    last = plan["scenarios"][-1]
    assert last["prediction"]["workers"] == math.ceil(last["prediction"]["slots"] / 2)
    assert last["recovered_ms"] > 0
    assert last["prediction"]["worst_ms"] > 1000
    curve = {point["slots"]: point["p95_ms"] for point in plan["curve"]}
    assert curve[needs["all of these"]] <= 200 < curve[needs["all of these"] - 1]


def test_named_workers_get_a_prediction_instead(capacity: Capacity) -> None:
    said = capacity("--queue", "mail", "--target-wait-p95", "5s", "--workers", "3", "--concurrency", "1")
    assert re.search(
        r"with 3 workers with 3 slots together the p95 wait is .* in Tue 09:00, below 5 s", said.out
    )


def test_limits_and_priorities_of_the_queue_are_part_of_the_prediction(capacity: Capacity) -> None:
    words = ("--queue", "mail", "--workers", "10", "--json")
    [free] = capacity(*words, "--priority", "send=2").documents
    [limited] = capacity(*words, "--max-active", "3").documents
    waited = [plan["scenarios"][0]["prediction"]["p95_ms"] for plan in (free, limited)]
    assert waited[0] < 5 < waited[1]


def test_the_page_has_the_answer_and_charts_and_escapes_names(tmp_path: Path) -> None:
    lake = history_lake(tmp_path / "lake", poisson(300, 4, 300, queue="<mail>"))
    page = tmp_path / "new" / "capacity.html"
    said = corral("lake", "capacity", lake.path, "--queue", "<mail>", "--page", str(page))
    assert said.code == 0, said.err
    assert f"the page is in {page}" in said.out
    html = page.read_text()
    assert "Capacity of &lt;mail&gt; (bullmq)" in html
    assert "<mail>" not in html
    assert html.count("<svg") == 4
    assert "Mon 00:00" in html
    assert "10,000,000" in html


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-q", "post"], "the lake has no attempts of queue 'post'; it has those of: both, few, mail"),
        (["-q", "few"], "the lake has 7 ended attempts of queue 'few', and a prediction needs 100"),
        (["-q", "both"], "the lake has queue 'both' in several protocols (bullmq, streams); name one"),
        (
            ["-q", "mail", "--target-wait-p95", "soon"],
            "--target-wait-p95 is 'soon'; use a time such as 500ms",
        ),
        (["-q", "mail", "--failover", "0s"], "--failover is '0s'; use a time such as"),
        (["-q", "mail", "--rate", "fast"], "--rate is 'fast'; use one such as 100/s"),
        (["-q", "mail", "--priority", "send"], "--priority is 'send'; use one such as send_email=2"),
        (["-q", "mail", "--load", "0"], "load 0.0 is out of range; use a number above 0"),
        (["-q", "mail", "--utilisation", "2"], "utilisation 2.0 is outside 0..1"),
        (["-q", "mail", "--rate", "1/s"], "no number of workers keeps the p95 wait of Tue 09:00 below 1 s"),
        (["-q", "mail", "--target-wait-p95", "0.1ms"], "of which a round trip takes 0.261 ms; give a longer"),
    ],
)
def test_what_cannot_be_answered_gets_one_sentence(capacity: Capacity, words: list[str], reason: str) -> None:
    said = capacity(*words)
    assert said.code != 0
    assert reason in said.err
    assert len(said.err.strip().splitlines()[-1:]) == 1
    assert "Traceback" not in said.err


def test_a_folder_without_a_lake_is_refused(tmp_path: Path) -> None:
    said = corral("lake", "capacity", str(tmp_path / "none"), "-q", "mail")
    assert "there is no lake in" in said.err
    assert not (tmp_path / "none").exists()


# -- past one machine ---------------------------------------------------------------------------------------


def test_costs_are_those_that_the_page_about_performance_has_measured() -> None:
    costs, page = measured_costs(), (DOCS / "performance.md").read_text()
    assert asdict(costs) | published_costs(page) == asdict(costs)
    assert costs.measured[:10] in page
    lake = (DOCS / "explanation" / "lake.md").read_text()
    assert f"{costs.events_per_second:,} events a second into Parquet" in lake


def test_the_plan_past_one_machine_names_the_first_limit(capacity: Capacity) -> None:
    [plan] = capacity("-q", "mail", "--utilisation", "1", "--json").documents
    scale, costs = plan["scale"], measured_costs()
    job_us = costs.add_server_us + costs.job_server_us
    assert f"full at {1e6 / job_us:,.0f} jobs a second" in scale["first_limit"]
    assert scale["first_limit"].startswith("the processor of one Redis shard")
    assert [row["jobs_per_second"] for row in scale["rows"]] == [10**5, 10**6, 10**7]
    for row in scale["rows"]:
        assert row["shards"] == row["queues"] == math.ceil(row["jobs_per_second"] * job_us / 1e6)
        assert row["slots"] == math.ceil(row["jobs_per_second"] * plan["mean_ms"] / 1000)
        events = row["jobs_per_second"] * 4
        assert row["executor_cores"] == math.ceil(events * 2 / costs.events_per_second)


def test_json_is_one_document(capacity: Capacity) -> None:
    said = capacity("-q", "mail", "--rate", "100/s", "--json")
    plan = json.loads(said.out)
    assert plan["options"]["limit"] == {"count": 100, "ms": 1000}
    assert plan["hours"][0]["hour"]["name"] == "Tue 09:00"


def test_a_lake_whose_attempts_are_not_there_yet_is_refused(tmp_path: Path) -> None:
    lake = history_lake(tmp_path / "lake", [attempt(1, MONDAY, 10)])
    for file in sorted((tmp_path / "lake" / "attempts").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    with pytest.raises(InvalidOptions, match="has no attempts yet; run corral lake run"):
        queue_history(lake, "mail")


# -- the page -----------------------------------------------------------------------------------------------


def shop_history(folder: Path) -> Lake:
    """The lake of the page: three days of a shop, from 11:00 to 14:00."""
    rows = []
    for day in range(3):
        for hour in range(11, 14):
            rate = 0.12 if hour in (12, 13) else 0.05
            begin = MONDAY + timedelta(days=day, hours=hour)
            rows += poisson(int(rate * 3500), rate, 20_000, begin, seed=day * 24 + hour)
    return history_lake(folder, (row | {"job_id": str(number)} for number, row in enumerate(rows)))


def test_the_command_of_the_how_to_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop_history(tmp_path / "history")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    [[typed]] = Page("docs/how-to/capacity.md").consoles()
    said = corral(*typed.command.removeprefix("corral ").split())
    assert said.code == 0, said.err
    compare(typed, said.out)
    assert "<svg" in (tmp_path / "capacity.html").read_text()
