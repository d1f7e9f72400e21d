"""What events tell of a queue: how much comes and goes in a second, and how long it takes."""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from corral.cli.demo.stage import percentile
from corral.core.event import EventKind

WINDOW_S = 10.0
"""Rates and times are those of the last so many seconds."""
MOST_JOBS = 50_000
"""Jobs whose next event is waited for; the oldest are forgotten first."""
MOST_TIMES = 10_000

COMING = frozenset({EventKind.ADDED, EventKind.WAITING})
PUT_OFF = frozenset({EventKind.DELAYED, EventKind.RETRY})
"""Not claimable until it is said to be waiting again."""
ENDING = frozenset({EventKind.COMPLETED, EventKind.DEAD, EventKind.CANCELLED})
COUNTED = frozenset({EventKind.ADDED, EventKind.RETRY}) | ENDING


@dataclass(frozen=True)
class Beat:
    """A queue's last seconds: jobs in a second by kind of event, and times in milliseconds."""

    rates: dict[str, float]
    wait_ms: float | None
    """95 of 100 jobs waited no longer to be claimed; None where none was."""
    run_ms: float | None
    """95 of 100 attempts took no longer; None where none ended."""


@dataclass
class Pulse:
    """Hears one queue's events; `now` is any clock that goes on, `at` is the events' own."""

    began: float
    _heard: deque[tuple[float, Counter[str]]] = field(default_factory=deque)
    _waits: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))
    _runs: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))
    _came: "OrderedDict[str, int]" = field(default_factory=OrderedDict)
    _began: "OrderedDict[str, int]" = field(default_factory=OrderedDict)

    def hear(self, events: Iterable[tuple[str, str | None, int]], now: float) -> None:
        """Take in (kind, job id, at) of events that were read together."""
        counted: Counter[str] = Counter()
        for kind, job_id, at in events:
            if kind in COUNTED:
                counted[kind] += 1
            if job_id is not None:
                self._time(kind, job_id, at, now)
        if counted:
            self._heard.append((now, counted))

    def _time(self, kind: str, job_id: str, at: int, now: float) -> None:
        if kind in ENDING or kind in PUT_OFF or kind == EventKind.WAITING:
            started = self._began.pop(job_id, None)
            if started is not None:
                self._runs.append((now, at - started))
        if kind in ENDING or kind in PUT_OFF:
            self._came.pop(job_id, None)
        elif kind in COMING:
            _keep(self._came, job_id, at)
        elif kind == EventKind.ACTIVE:
            came = self._came.pop(job_id, None)
            if came is not None:
                self._waits.append((now, at - came))
            _keep(self._began, job_id, at)

    def beat(self, now: float) -> Beat:
        """How it goes now."""
        for heard in (self._heard, self._waits, self._runs):
            while heard and heard[0][0] <= now - WINDOW_S:
                heard.popleft()
        seconds = max(min(now - self.began, WINDOW_S), 1e-3)
        total: Counter[str] = sum((counted for _, counted in self._heard), Counter())
        return Beat(
            {kind.value: total[kind] / seconds for kind in EventKind if kind in COUNTED},
            _p95(self._waits),
            _p95(self._runs),
        )


def _p95(times: Iterable[tuple[float, int]]) -> float | None:
    values = [time for _, time in times]
    return percentile(values, 0.95) if values else None


def _keep(jobs: "OrderedDict[str, int]", job_id: str, at: int) -> None:
    jobs[job_id] = at
    jobs.move_to_end(job_id)
    if len(jobs) > MOST_JOBS:
        jobs.popitem(last=False)
