"""Node and Corral work one queue side by side: each job once, and no telling from the keyspace who ran it.

The shadow test of a migration: a split of the work, equal error rates, snapshots of the state meanwhile,
and one format of events.
"""

from collections import Counter, defaultdict
from typing import Any

from tests.protocols.bullmq.scripted_handler import play
from tests.protocols.bullmq.shared_queue import SharedQueue
from tests.support.compare import ADDED_FIELDS
from tests.support.keyspace import Keyspace
from tests.support.polling import until

JOBS = 1_000
SHARED_KEYS = {
    "active": "list", "wait": "list", "completed": "zset", "failed": "zset", "delayed": "zset",
    "events": "stream", "id": "string", "marker": "zset", "meta": "hash", "stalled": "set",
    "stalled-check": "string", "pc": "string", "prioritized": "zset",
}  # fmt: skip


def script(n: int) -> dict[str, Any]:
    """The script of job n: some fail for good, some at first, some report progress."""
    if n % 10 == 3:
        return {"fail": -1, "message": "never"}
    if n % 10 == 6:
        return {"fail": 1, "message": "not yet"}
    return {"progress": [50], "return": {"n": n}} if n % 10 == 9 else {"return": {"n": n}, "sleep": 1}


def attempts(n: int) -> dict[str, Any]:
    return {"attempts": 2, "backoff": 5 if n % 2 else 20}


async def run_both(shared: SharedQueue) -> list[Keyspace]:
    """Work all jobs with one worker of each kind; snapshots of the state taken meanwhile."""
    shared.app.job("send", queue="mail")(play)
    with shared.server.connect() as client:
        client.hset("bull:mail:meta", "opts.maxLenEvents", 100_000)
    snapshots: list[Keyspace] = []

    async def all_ended() -> bool:
        snapshots.append(shared.keyspace())
        last = snapshots[-1]
        return sum(len(last[name].value) for name in ("completed", "failed") if name in last) == JOBS

    async with (
        shared.corral_works(concurrency=8, name="anna"),
        shared.node_works({}, concurrency=8, name="nora"),
    ):
        await shared.idle(2)
        half = JOBS // 2
        rows = [("send", {"n": n, "script": script(n)}, attempts(n)) for n in range(JOBS)]
        await shared.queue.add_many((name, data, {**opts}) for name, data, opts in rows[:half])
        jobs = [{"name": name, "data": data, "opts": opts} for name, data, opts in rows[half:]]
        await shared.node("addBulk", queue="queue", jobs=jobs)
        await until(all_ended, "all jobs have ended", seconds=60)
    snapshots.append(shared.keyspace())
    return snapshots


async def test_both_work_one_queue_and_nobody_can_tell_who_did_what(shared: SharedQueue) -> None:
    snapshots = await run_both(shared)
    final = snapshots[-1]
    jobs = {name: entry.value for name, entry in final.items() if name.isdigit()}
    events = events_by_job(final)
    runners = {job_id: fields["pb"].decode() for job_id, fields in jobs.items()}

    assert_each_ended_once(jobs, events, final)
    assert_the_work_was_split(runners)
    assert_error_rates_are_those_of_the_work(jobs, runners)
    assert_one_format(jobs, events, runners)
    for snapshot in snapshots:
        assert_snapshot_is_sound(snapshot)


def events_by_job(space: Keyspace) -> dict[str, list[dict[str, bytes]]]:
    """Each job's events, in order."""
    events: dict[str, list[dict[str, bytes]]] = defaultdict(list)
    for _, fields in space["events"].value:
        event = dict(fields)
        if "jobId" in event:
            events[event["jobId"].decode()].append(event)
    return events


def assert_each_ended_once(jobs: dict[str, Any], events: dict[str, Any], final: Keyspace) -> None:
    assert len(jobs) == JOBS
    for job_id, fields in jobs.items():
        counts = Counter(event["event"] for event in events[job_id])
        expected = 2 if number(job_id) % 10 in (3, 6) else 1
        assert counts[b"completed"] + counts[b"failed"] == 1
        assert counts[b"active"] == int(fields["ats"]) == int(fields["atm"]) == expected
        assert "stc" not in fields
    assert not {"wait", "active", "delayed", "prioritized"} & final.keys()
    assert not [name for name in final if name.endswith(":lock")]


def number(job_id: str) -> int:
    return int(job_id) - 1


def assert_the_work_was_split(runners: dict[str, str]) -> None:
    share = Counter(runners.values())
    assert set(share) == {"anna", "nora"}
    assert min(share.values()) >= JOBS // 50, share


def assert_error_rates_are_those_of_the_work(jobs: dict[str, Any], runners: dict[str, str]) -> None:
    for runner in ("anna", "nora"):
        mine = [job_id for job_id, name in runners.items() if name == runner]
        failed = {job_id for job_id in mine if "returnvalue" not in jobs[job_id]}
        assert failed == {job_id for job_id in mine if number(job_id) % 10 == 3}
        assert {jobs[job_id]["failedReason"] for job_id in failed} <= {b"never"}


def assert_one_format(jobs: dict[str, Any], events: dict[str, Any], runners: dict[str, str]) -> None:
    """Jobs with the same script have the same hash fields and events, whichever worker ran them."""
    looks: dict[tuple[int, str], dict[str, set[Any]]] = defaultdict(lambda: {"hash": set(), "events": set()})
    for job_id, fields in jobs.items():
        kind = number(job_id) % 20
        look = looks[kind, runners[job_id]]
        look["hash"].add(tuple(sorted(fields.keys() - ADDED_FIELDS)))
        # a retried job may have changed workers, which leaves no trace but pb: the events must not show it
        look["events"].add(tuple(tuple(event_shape(event)) for event in events[job_id]))
    for kind in range(20):
        ours, theirs = looks.get((kind, "anna")), looks.get((kind, "nora"))
        if ours is not None and theirs is not None:
            assert ours == theirs, f"jobs of kind {kind} differ"
    assert len({runner for _, runner in looks}) == 2


def event_shape(event: dict[str, bytes]) -> list[Any]:
    """One event without what must differ from job to job."""
    free = {"jobId", "delay", "returnvalue"}
    return [(name, None if name in free else value) for name, value in event.items()]


def assert_snapshot_is_sound(snapshot: Keyspace) -> None:
    """No key of an unknown name or type, and every job in exactly one place."""
    places: Counter[bytes] = Counter()
    for name, entry in snapshot.items():
        if name in SHARED_KEYS:
            assert entry.kind == SHARED_KEYS[name], name
        else:
            assert name.removesuffix(":lock").isdigit(), name
            assert entry.kind == ("string" if name.endswith(":lock") else "hash"), name
    for name in ("wait", "active"):
        places.update(snapshot[name].value if name in snapshot else [])
    for name in ("completed", "failed", "delayed", "prioritized"):
        places.update(member for member, _ in (snapshot[name].value if name in snapshot else []))
    assert not [job_id for job_id, count in places.items() if count > 1]
    assert len(places) == sum(name.isdigit() for name in snapshot)
    held = {name.removesuffix(":lock").encode() for name in snapshot if name.endswith(":lock")}
    assert held == set(snapshot["active"].value if "active" in snapshot else [])
