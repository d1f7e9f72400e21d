"""RateMeter: rates and times of a queue, computed from its events."""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from corral.core.event import EventKind

WINDOW_S = 10.0
"""Rates and times are those of so many last seconds."""
MAX_JOBS = 50_000
"""Jobs whose next event is awaited; the oldest are forgotten first."""
MAX_TIMES = 10_000

ARRIVED = frozenset({EventKind.ADDED, EventKind.WAITING})
DELAYED = frozenset({EventKind.DELAYED, EventKind.RETRY})
"""Not claimable before the next `waiting` event."""
ENDED = frozenset({EventKind.COMPLETED, EventKind.DEAD, EventKind.CANCELLED})
COUNTED = frozenset({EventKind.ADDED, EventKind.RETRY}) | ENDED


@dataclass(frozen=True)
class QueueRates:
    """Events per second by kind, and times in milliseconds; None where there was no such event."""

    per_second: dict[str, float]
    wait_p95_ms: float | None
    """From waiting to claimed: 95 % of the jobs took no longer."""
    run_p95_ms: float | None
    """From claimed to the end of the attempt: 95 % of the attempts took no longer."""


@dataclass
class RateMeter:
    """Counts the events of one queue; `now` is any monotonic clock, `at` that of the events."""

    started: float
    _counts: deque[tuple[float, Counter[str]]] = field(default_factory=deque)
    _waits: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MAX_TIMES))
    _runs: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MAX_TIMES))
    _waiting: "OrderedDict[str, int]" = field(default_factory=OrderedDict)
    _active: "OrderedDict[str, int]" = field(default_factory=OrderedDict)

    def add(self, events: Iterable[tuple[str, str | None, int]], now: float) -> None:
        """Count events, each as (kind, job id, at), that were read together."""
        counts: Counter[str] = Counter()
        for kind, job_id, at in events:
            if kind in COUNTED:
                counts[kind] += 1
            if job_id is not None:
                self._measure(kind, job_id, at, now)
        if counts:
            self._counts.append((now, counts))

    def _measure(self, kind: str, job_id: str, at: int, now: float) -> None:
        if kind in ENDED or kind in DELAYED or kind == EventKind.WAITING:
            claimed_at = self._active.pop(job_id, None)
            if claimed_at is not None:
                self._runs.append((now, at - claimed_at))
        if kind in ENDED or kind in DELAYED:
            self._waiting.pop(job_id, None)
        elif kind in ARRIVED:
            _remember(self._waiting, job_id, at)
        elif kind == EventKind.ACTIVE:
            arrived_at = self._waiting.pop(job_id, None)
            if arrived_at is not None:
                self._waits.append((now, at - arrived_at))
            _remember(self._active, job_id, at)

    def rates(self, now: float) -> QueueRates:
        """Return the rates and times of the last `WINDOW_S` seconds."""
        for entries in (self._counts, self._waits, self._runs):
            while entries and entries[0][0] <= now - WINDOW_S:
                entries.popleft()
        seconds = max(min(now - self.started, WINDOW_S), 1e-3)
        total: Counter[str] = sum((counts for _, counts in self._counts), Counter())
        return QueueRates(
            {kind.value: total[kind] / seconds for kind in EventKind if kind in COUNTED},
            _p95(self._waits),
            _p95(self._runs),
        )


def _p95(times: Iterable[tuple[float, int]]) -> float | None:
    values = [time for _, time in times]
    return percentile(values, 0.95) if values else None


def _remember(jobs: "OrderedDict[str, int]", job_id: str, at: int) -> None:
    jobs[job_id] = at
    jobs.move_to_end(job_id)
    if len(jobs) > MAX_JOBS:
        jobs.popitem(last=False)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed; 0 for none.

    >>> percentile([5, 1, 4, 2, 3], 0.8)
    4
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(-(-int(share * 1000) * len(ordered) // 1000) - 1, 0)]
