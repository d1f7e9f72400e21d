"""The BridgeMQ protocol: `python -m bench.bridgemq [--quick] [--rounds N]`.

Claims a second by 1, 4 and 16 workers of one process beside the bullmq protocol; and 100,000 waiting jobs
of 1 KB of which one in 10,000 fits the worker: calls needed, and the server's time a call.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from bench import report, rounds
from bench.measure import Figure, Measure, own_us, rate, server_us
from bench.peer import ROOT, Peer, ProcessPeer, Reading
from bench.rounds import Entry

RESULTS = ROOT / "bench" / "results"
MOST_CALLS = 100
"""To a match behind 10,000 others."""
LONGEST_MS = 2.0


def server_ms(reading: Reading) -> float:
    """The server's time for one call, in ms."""
    return float(reading["server_us"] / reading["calls"] / 1000)


def server_cpu_ms(reading: Reading) -> float:
    """The server's CPU for one call, in ms: a machine that has other things to do does not change it."""
    return float(reading["server_cpu_s"] / reading["calls"] * 1000)


CLAIMS = Measure(
    name="claims",
    count=20_000,
    quick_count=3_000,
    sweep=(1, 4, 16),
    quick_sweep=(1, 4, 16),
    figures=(
        Figure("claims", "jobs/s", True, rate),
        Figure("claims: own CPU", "µs/job", False, own_us),
        Figure("claims: server's CPU", "µs/job", False, server_us),
    ),
)
LONG_LIST = Measure(
    name="long_list",
    count=100_000,
    quick_count=20_000,
    figures=(
        Figure("calls to a match, at most", "calls", False, lambda reading: max(reading["needed"])),
        Figure("server's time a call", "ms", False, server_ms),
        Figure("server's CPU a call", "ms", False, server_cpu_ms),
        Figure("server's longest call", "ms", False, lambda reading: reading["slowest_us"] / 1000),
    ),
)
AIMS = {"calls to a match, at most": MOST_CALLS, "server's time a call": LONGEST_MS}


def protocol(name: str) -> Peer:
    return ProcessPeer(f"protocol {name}", [sys.executable, "-m", "bench.drivers.protocols_driver", name])


def claims_table(entries: Sequence[Entry], peers: Sequence[str]) -> Table:
    """Every figure at each number of workers, the protocols side by side."""
    table = Table("workers", "figure", "unit", *peers)
    for figure in CLAIMS.figures:
        medians = [
            rounds.by_setting([entry for entry in entries if entry.peer == peer], figure) for peer in peers
        ]
        for workers in medians[0]:
            values = [report.number(of_peer[workers]) for of_peer in medians]
            table.add_row(str(workers), figure.name, figure.unit, *values)
    return table


def long_list_table(entries: Sequence[Entry]) -> Table:
    """Each figure with its aim: green where it is met."""
    table = Table("figure", "unit", "value", "aim")
    for figure in LONG_LIST.figures:
        [value] = rounds.by_setting(entries, figure).values()
        aim = AIMS.get(figure.name)
        colour = "" if aim is None else "green" if value <= aim else "red"
        goal = "" if aim is None else f"≤ {aim}"
        table.add_row(figure.name, figure.unit, report.number(value), goal, style=colour)
    return table


def main() -> None:
    """Measure, print and keep every reading."""
    parser = argparse.ArgumentParser(prog="python -m bench.bridgemq", description="The BridgeMQ protocol.")
    parser.add_argument("--quick", action="store_true", help="few jobs and one round: does it run at all?")
    parser.add_argument("--rounds", type=int, default=3, help="rounds to take the median of (3)")
    arguments = parser.parse_args()
    count = 1 if arguments.quick else max(arguments.rounds, 1)
    console = Console()
    ground = rounds.ground()
    console.print(", ".join(f"{what} {which}" for what, which in ground.items()), style="dim")
    peers = [protocol("bullmq"), protocol("bridgemq")]
    names = [peer.name for peer in peers]
    with console.status("measuring") as status:
        claimed = rounds.run(peers, [CLAIMS], count, arguments.quick, status.update)
        looked = rounds.run(peers[1:], [LONG_LIST], count, arguments.quick, status.update)
    results = [*rounds.results(claimed, [CLAIMS], names), *rounds.results(looked, [LONG_LIST], names[1:])]
    saved = report.save(RESULTS, datetime.now(UTC), [*claimed, *looked], results, ground)
    console.print(claims_table(claimed, names))
    console.print(long_list_table(looked))
    console.print(f"{report.counted(count)}; {saved.relative_to(ROOT)}", style="dim")


if __name__ == "__main__":
    main()
