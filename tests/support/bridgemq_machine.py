"""A state machine over one namespace: whatever is done in whatever order, a dict says what comes of it."""

import asyncio
from dataclasses import dataclass
from typing import Any

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from corral.core.job import Claim
from corral.core.outcome import Completed, Dead, Outcome, Postponed, Released, Retry
from corral.store.client import Store
from tests.support.bridgemq_harness import BridgemqHarness
from tests.support.jobs import submit

START = 1_732_377_000_000
WORKERS = ("w1", "w2", "w3")
LIMITS = {"free": {}, "limited": {"concurrent": 2}, "slow": {"per_minute": 4}}
ATTEMPTS = 3
TYPES = st.sampled_from(sorted(LIMITS))


@dataclass
class Model:
    """What the namespace must look like of one job."""

    id: str
    type: str
    priority: int
    server: str | None
    state: str
    attempts: int = 0
    due: int = 0
    claim: Claim | None = None
    worker: str = ""


class Machine(RuleBasedStateMachine):
    """Rules act on a real server and on the model; the invariants hold the two together."""

    server_url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.jobs: dict[str, Model] = {}
        self.waiting: list[str] = []
        self.dead: list[str] = []
        self.late: list[tuple[str, Claim]] = []
        """Claims that are lost: every settlement of them must be refused."""
        self.claimed_this_minute = dict.fromkeys(LIMITS, 0)
        self.is_paused = False
        self.made = 0

    def do(self, awaitable: Any) -> Any:
        return self.runner.run(awaitable)

    @initialize()
    def open(self) -> None:
        self.client = redis.Redis.from_url(self.server_url, protocol=2)
        self.client.flushall()

        async def opened() -> BridgemqHarness:
            return BridgemqHarness(Store(self.server_url), self.client)

        self.harness = self.do(opened())
        self.harness.now = START

        async def brokers() -> dict[str, Any]:
            return {name: self.harness.broker(name) for name in WORKERS}

        self.brokers = self.do(brokers())

    def teardown(self) -> None:
        async def closed() -> None:
            await self.harness.close()
            await self.harness.store.close()

        self.do(closed())
        self.runner.close()
        self.client.close()

    # -- what the model knows ----------------------------------------------------------------------------

    def active(self, kind: str | None = None) -> list[Model]:
        return [job for job in self.jobs.values() if job.state == "active" and kind in (None, job.type)]

    def enter(self, job: Model, *, is_front: bool = False) -> None:
        job.state, job.claim, job.worker = "waiting", None, ""
        if is_front or job.priority >= 7:
            self.waiting.insert(0, job.id)
        else:
            self.waiting.append(job.id)

    def promote(self) -> None:
        due = [
            job
            for job in self.jobs.values()
            if job.state in ("delayed", "failed") and job.due <= self.harness.now
        ]
        for job in sorted(due, key=lambda job: (job.due, job.id)):
            self.enter(job)

    def is_free(self, kind: str) -> bool:
        limits = LIMITS[kind]
        if "concurrent" in limits and len(self.active(kind)) >= limits["concurrent"]:
            return False
        return not ("per_minute" in limits and self.claimed_this_minute[kind] >= limits["per_minute"])

    def expected_claims(self, worker: str, want: int) -> list[str]:
        taken: list[str] = []
        for job_id in list(self.waiting):
            job = self.jobs[job_id]
            if len(taken) < want and job.server in (None, worker) and self.is_free(job.type):
                self.waiting.remove(job_id)
                job.state, job.worker = "active", worker
                self.claimed_this_minute[job.type] += 1
                taken.append(job_id)
        return taken

    # -- rules -------------------------------------------------------------------------------------------

    @rule(
        kind=TYPES, priority=st.sampled_from([0, 6, 7]), server=st.sampled_from([None, None, *WORKERS]),
        delay=st.sampled_from([0, 0, 0, 500, 5000]),
    )  # fmt: skip
    def add(self, kind: str, priority: int, server: str | None, delay: int) -> None:
        self.made += 1
        job = Model(f"j{self.made:03}", kind, priority, server, "delayed", due=self.harness.now + delay)
        options: dict[str, Any] = {"target": {"server": server}} if server else {}
        submitted = self.harness.job(
            name=kind,
            id=job.id,
            priority=priority,
            delay=delay,
            attempts=ATTEMPTS,
            rate=LIMITS[kind],
            **options,
        )
        assert self.do(submit(self.brokers["w1"], [submitted])) == [job.id]
        self.jobs[job.id] = job
        if not delay:
            self.enter(job)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        assert self.do(submit(self.brokers["w1"], [self.harness.job(name="other", id=job_id)])) == [job_id]

    @rule(worker=st.sampled_from(WORKERS), want=st.integers(1, 4))
    def claim(self, worker: str, want: int) -> None:
        turn = self.do(self.brokers[worker].turn([], want))
        self.promote()
        expected = [] if self.is_paused else self.expected_claims(worker, want)
        assert [claim.job.id for claim in turn.claims] == expected
        for claim in turn.claims:
            job = self.jobs[claim.job.id]
            assert claim.job.attempts_made == job.attempts
            job.claim = claim

    @precondition(lambda self: self.active())
    @rule(
        data=st.data(),
        outcome=st.sampled_from(
            [
                Completed(b"1"),
                Completed(b"[]"),
                Retry(0, "x"),
                Retry(900, "x"),
                Dead("x"),
                Released(),
                Postponed(700),
            ]
        ),
    )
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        job = data.draw(st.sampled_from(self.active()))
        assert job.claim is not None
        turn = self.do(self.brokers[job.worker].turn([self.harness.settle(job.claim, outcome)], 0))
        assert turn.verdicts == [None]
        self.late.append((job.worker, job.claim))
        self.apply(job, outcome)

    def apply(self, job: Model, outcome: Outcome) -> None:
        match outcome:
            case Completed():
                job.state = "completed"
            case Dead():
                job.attempts += 1
                job.state = "dead"
                self.dead.insert(0, job.id)
            case Retry(delay=0):
                job.attempts += 1
                self.enter(job)
            case Retry(delay=delay):
                job.attempts += 1
                job.state, job.due = "failed", self.harness.now + delay
            case Postponed(delay=delay):
                job.state, job.due = "delayed", self.harness.now + delay
            case Released():
                job.state = "waiting"
                self.waiting.insert(0, job.id)

    @precondition(lambda self: self.late)
    @rule(
        data=st.data(),
        outcome=st.sampled_from([Completed(b'"late"'), Dead("late"), Retry(0, "late"), Released()]),
    )
    def speak_late(self, data: st.DataObject, outcome: Outcome) -> None:
        worker, claim = data.draw(st.sampled_from(self.late))
        turn = self.do(self.brokers[worker].turn([self.harness.settle(claim, outcome)], 0))
        assert turn.verdicts[0] is not None
        assert list(self.do(self.brokers[worker].extend([claim])).lost) == [claim]

    @precondition(lambda self: self.active())
    @rule()
    def renew(self) -> None:
        for worker in WORKERS:
            held = [job.claim for job in self.active() if job.worker == worker]
            extension = self.do(self.brokers[worker].extend(held))
            assert (list(extension.lost), list(extension.cancelled)) == ([], [])

    @precondition(lambda self: self.active())
    @rule(worker=st.sampled_from(WORKERS), recoverer=st.sampled_from(WORKERS))
    def kill(self, worker: str, recoverer: str) -> None:
        """A worker sends no heartbeat for 30 s, and another recovers its jobs."""
        held = sorted((job for job in self.active() if job.worker == worker), key=lambda job: job.id)
        self.client.delete(
            f"bridge:workers:heartbeat:{worker}", *[f"bridge:jobs:lock:{job.id}" for job in held]
        )
        self.late += [(worker, job.claim) for job in held if job.claim is not None]
        recovery = self.do(self.brokers[recoverer].recover())
        back = {job.id for job in held if job.attempts + 1 < ATTEMPTS}
        assert set(recovery.requeued) == back
        assert set(recovery.ended) == {job.id for job in held} - back
        # the order among them is the server's; that they are in front of all others is not
        for job_id in recovery.requeued:
            self.enter(self.jobs[job_id], is_front=True)
        self.dead = [*reversed(recovery.ended), *self.dead]
        for job in held:
            job.attempts += 1
            if job.id not in back:
                job.state = "dead"

    @rule(ms=st.sampled_from([1, 400, 1000, 6000]))
    def advance_clock(self, ms: int) -> None:
        self.harness.now += ms

    @rule()
    def a_minute_passes(self) -> None:
        for kind in LIMITS:
            self.client.delete(f"bridge:ratelimit:minute:{kind}")
            self.claimed_this_minute[kind] = 0

    @rule()
    def promote_now(self) -> None:
        self.do(self.brokers["w2"].promote())
        self.promote()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        operator = self.harness.operator
        self.do(operator.pause() if paused else operator.resume())
        self.is_paused = paused

    @precondition(lambda self: self.dead)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.dead), unique=True, min_size=1))
        assert self.do(self.harness.operator.replay(chosen)) == chosen
        for job_id in chosen:
            self.dead.remove(job_id)
            self.jobs[job_id].attempts = 0
            self.enter(self.jobs[job_id])

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]
        done = self.do(self.harness.operator.cancel([job.id])) if job.state != "active" else [job.id]
        assert done == ([job.id] if job.state in ("waiting", "delayed", "failed", "active") else [])
        if job.state in ("waiting", "delayed", "failed"):
            if job.id in self.waiting:
                self.waiting.remove(job.id)
            del self.jobs[job.id]

    # -- what must hold ----------------------------------------------------------------------------------

    @invariant()
    def the_lists_are_as_the_model_says(self) -> None:
        if not hasattr(self, "harness"):
            return
        assert self.harness.ids("waiting") == self.waiting
        assert self.harness.ids("deadletter") == self.dead
        assert set(self.harness.ids("active")) == {job.id for job in self.active()}
        delayed = {job.id: job.due for job in self.jobs.values() if job.state in ("delayed", "failed")}
        scores = self.client.zrange("bridge:jobs:delayed", 0, -1, withscores=True)
        assert {job_id.decode(): int(score) for job_id, score in scores} == delayed

    @invariant()
    def every_status_is_as_the_model_says(self) -> None:
        for job in self.jobs.values():
            assert self.harness.text("jobs", "status", job.id) == job.state, job

    @invariant()
    def no_slot_leaks(self) -> None:
        for kind in LIMITS:
            if hasattr(self, "harness"):
                counted = int(self.harness.text("ratelimit", "concurrent", kind) or 0)
                assert counted == len(self.active(kind))

    @invariant()
    def who_holds_a_job_is_written_in_its_lock(self) -> None:
        for job in self.jobs.values():
            held_by = self.harness.text("jobs", "lock", job.id)
            assert held_by == (job.worker if job.state == "active" else None)
