"""What a worker writes about itself on each beat: its record, and what it did in each minute."""

import os
import socket
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from time import perf_counter

from corral.core.job import Claim
from corral.core.outcome import Cancelled, Completed, Dead, Retry
from corral.core.ports import MINUTE_BOUNDS_MS, MOST_RUNNING, CurrentJob, WorkerRecord
from corral.worker.attempt import Attempt, RunningAttempt
from corral.worker.config import WorkerConfig
from corral.worker.unhandled import UnhandledNames

MINUTE_MS = 60_000
MOST_SAMPLES = 10
"""Times of one trip that enter the histograms."""
_BOUNDS_S = tuple(bound / 1000 for bound in MINUTE_BOUNDS_MS)
_RUNS = tuple(f"run{index}" for index in range(len(MINUTE_BOUNDS_MS) + 1))
_WAITS = tuple(f"wait{index}" for index in range(len(MINUTE_BOUNDS_MS) + 1))
COUNTED: Mapping[type, str] = {Completed: "completed", Dead: "dead", Retry: "retried", Cancelled: "cancelled"}


class MinuteCounts:
    """What a worker did, by minute, since it was last taken.

    The turn loop appends, at the cost of a tuple a trip; the heartbeat's thread counts.
    """

    def __init__(self) -> None:
        self._trips: deque[tuple[int, Mapping[type, int], Sequence[float], Sequence[int]]] = deque()
        self._counts: dict[int, Counter[str]] = {}

    def settled(self, now: int, outcomes: Mapping[type, int], run_s: Sequence[float]) -> None:
        """Add what a trip settled, and how long those attempts ran."""
        if len(run_s) > MOST_SAMPLES:
            run_s = run_s[:: -(-len(run_s) // MOST_SAMPLES)]
        self._trips.append((now, outcomes, run_s, ()))

    def claimed(self, now: int, claims: Sequence[Claim]) -> None:
        """Add what a trip claimed."""
        if len(claims) > MOST_SAMPLES:
            claims = claims[:: -(-len(claims) // MOST_SAMPLES)]
        waits = [
            now - job.created_at - job.options.delay
            for job in [claim.job for claim in claims]
            if not job.attempts_made
        ]
        self._trips.append((now, {}, (), waits))

    def take(self) -> dict[int, Counter[str]]:
        """Return the counts, which are kept until `written`; in the heartbeat's thread."""
        while self._trips:
            now, outcomes, run_s, waits = self._trips.popleft()
            counts = self._counts.setdefault(now - now % MINUTE_MS, Counter())
            for outcome, count in outcomes.items():
                if outcome in COUNTED:
                    counts[COUNTED[outcome]] += count
            for seconds in run_s:
                counts[_RUNS[bisect_left(_BOUNDS_S, seconds)]] += 1
            for wait in waits:
                counts[_WAITS[bisect_left(MINUTE_BOUNDS_MS, wait)]] += 1
        return self._counts

    def written(self) -> None:
        """Forget what was taken."""
        self._counts = {}


class RecordWriter:
    """Makes the records of one worker."""

    def __init__(self, config: WorkerConfig, unhandled: UnhandledNames) -> None:
        self._config = config
        self._unhandled = unhandled
        self._since = config.clock()
        self._host = socket.gethostname()
        self._handlers = config.handlers.schemas()

    def record(self, held: Sequence[Attempt]) -> WorkerRecord:
        """Return the record of this moment."""
        config = self._config
        now, steady = config.clock(), perf_counter()
        running = [
            one for one in held if isinstance(one, RunningAttempt) and one.started and not one.is_ended
        ]
        return WorkerRecord(
            name=config.profile.name,
            host=self._host,
            process=os.getpid(),
            since=self._since,
            at=now,
            concurrency=config.concurrency,
            running_count=len(running),
            running=[
                CurrentJob(one.claim.job.id, one.claim.job.name, now - int((steady - one.started) * 1000))
                for one in nsmallest(MOST_RUNNING, running, key=lambda one: one.started)
            ],
            handlers=self._handlers,
            unhandled=self._unhandled.recent(),
            schedules=config.schedules,
            keeps_all=config.profile.keep_completed is None or config.profile.keep_dead is None,
        )
