"""Rounds: every measure by every peer on one fresh server, in an order that changes from round to round."""

import gc
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median

from tests.support.node import node_binary
from tests.support.servers import Server, start_valkey

from bench.measure import Figure, Measure
from bench.peer import Peer, Reading, Task


@dataclass(frozen=True)
class Entry:
    """One reading: whose, of what, at which setting, in which round."""

    peer: str
    measure: str
    setting: int | None
    round: int
    reading: Reading


def run(
    peers: Sequence[Peer],
    measures: Sequence[Measure],
    rounds: int,
    is_quick: bool,
    say: Callable[[str], None],
) -> list[Entry]:
    """Every peer's readings; each begins with an empty server."""
    server = start_valkey()
    entries: list[Entry] = []
    try:
        for number in range(rounds):
            # each peer comes first as often as the others: a machine that warms up or tires favours nobody
            turn = number % len(peers)
            order_of_peers = [*peers[turn:], *peers[:turn]]
            for measure in measures:
                for task in measure.tasks(server.url, is_quick):
                    for peer in order_of_peers:
                        entries.append(_one(peer, server, task, number))
                        say(_told(entries[-1], measure))
    finally:
        server.stop()
    return entries


def _one(peer: Peer, server: Server, task: Task, number: int) -> Entry:
    gc.collect()
    with server.connect() as client:
        client.execute_command("FLUSHALL", "SYNC")  # the next peer would pay for what is freed beside it
    reading = peer.measure(task)
    return Entry(peer.name, task["measure"], task.get("setting"), number, reading)


def _told(entry: Entry, measure: Measure) -> str:
    first = measure.figures[0]
    at = "" if entry.setting is None else f" at {entry.setting}"
    value = f"{first.take(entry.reading):,.2f} {first.unit}"
    return f"round {entry.round + 1}: {first.name}{at}: {entry.peer}: {value}"


# -- medians ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A figure's median over the rounds, at the setting its peer is best at."""

    figure: Figure
    peer: str
    value: float
    times: float
    """How many times better than the first peer: the median of what each round says, whose readings are
    neighbours. A machine that is fast for some minutes and slow for others moves the medians more."""
    setting: int | None
    lowest: float
    highest: float


def results(entries: Sequence[Entry], measures: Sequence[Measure], peers: Sequence[str]) -> list[Result]:
    """One result for each figure and peer."""
    found = []
    for measure in measures:
        _, baseline = _at_best(entries, measure, peers[0])
        for peer in peers:
            best, readings = _at_best(entries, measure, peer)
            for figure in measure.figures:
                values = [figure.take(reading) for reading in readings]
                beside = [figure.take(reading) for reading in baseline]
                times = median(map(figure.times_better, values, beside))
                found.append(Result(figure, peer, median(values), times, best, min(values), max(values)))
    return found


def _at_best(entries: Sequence[Entry], measure: Measure, peer: str) -> tuple[int | None, list[Reading]]:
    """The setting this peer is best at, and what it reached there in each round."""
    own = [entry for entry in entries if entry.measure == measure.name and entry.peer == peer]
    best = _best_setting(own, measure.figures[0])
    return best, [entry.reading for entry in own if entry.setting == best]


def _best_setting(entries: Sequence[Entry], figure: Figure) -> int | None:
    medians = by_setting(entries, figure)
    return (max if figure.is_more_better else min)(medians, key=medians.__getitem__)


def by_setting(entries: Sequence[Entry], figure: Figure) -> dict[int | None, float]:
    """A figure's median over the rounds at each setting."""
    return {
        setting: median(figure.take(entry.reading) for entry in entries if entry.setting == setting)
        for setting in sorted({entry.setting for entry in entries}, key=lambda setting: setting or 0)
    }


# -- the ground ---------------------------------------------------------------------------------------------


def ground() -> dict[str, str]:
    """What it ran on; only ratios taken on one machine in one run mean anything."""
    with (server := start_valkey()).connect() as client:
        info = client.info("server")
    server.stop()
    node = subprocess.run([str(node_binary()), "--version"], capture_output=True, text=True, check=True)
    return {
        "cores": str(os.cpu_count()),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "node": node.stdout.strip().lstrip("v"),
        "server": f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}",
        "corral": version("corral"),
        "uvloop": _version_or_none("uvloop"),
        "bullmq": "5.62.0 and 6.7.0",
    }


def _version_or_none(package: str) -> str:
    try:
        return version(package)
    except Exception:
        return "not installed"
