"""What is measured, and the figures that are taken from a reading."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.peer import Reading, Task


@dataclass(frozen=True)
class Figure:
    """One number of a reading, and which way it is better."""

    name: str
    unit: str
    is_more_better: bool
    take: Callable[[Reading], float]
    aim: str = ""
    is_met: Callable[[float, float], bool] | None = None
    """(our figure, how many times better than the baseline) -> is the aim met?"""

    def times_better(self, ours: float, baseline: float) -> float:
        """How many times better than the baseline; more than 1 is better."""
        return ours / baseline if self.is_more_better else baseline / ours


@dataclass(frozen=True)
class Measure:
    """One thing that every peer has to do.

    `sweep` are the settings each peer is tried at; what counts is the one it is best at.
    """

    name: str
    count: int
    quick_count: int
    figures: Sequence[Figure]
    sweep: Sequence[int] = ()
    quick_sweep: Sequence[int] = ()

    def tasks(self, url: str, is_quick: bool) -> list[Task]:
        """What to ask of a peer in one round: one task for each setting."""
        task = {"measure": self.name, "url": url, "count": self.quick_count if is_quick else self.count}
        sweep = self.quick_sweep if is_quick else self.sweep
        return [{**task, "setting": setting} for setting in sweep] or [task]


def rate(reading: Reading) -> float:
    """Jobs a second."""
    return float(reading["count"] / reading["seconds"])


def server_us(reading: Reading) -> float:
    """Microseconds of the server's CPU a job."""
    return float(reading["server_cpu_s"] * 1e6 / reading["count"])


def own_us(reading: Reading) -> float:
    """Microseconds of the peer's own CPU a job."""
    return float(reading["own_cpu_s"] * 1e6 / reading["count"])


def percentile(share: float) -> Callable[[Reading], float]:
    """The latency that this share of the jobs stays within, in ms."""

    def take(reading: Reading) -> float:
        ordered = sorted(reading["latencies_ms"])
        return float(ordered[min(int(len(ordered) * share), len(ordered) - 1)])

    return take
