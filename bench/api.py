"""The native API: `python -m bench.api [--quick] [--rounds N]`.

Handlers with typed parameters, and with a middleware, beside handlers that read the data themselves; and how
long `import corral` and `corral --help` take beside a Python that does nothing.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.table import Table

from bench import report, rounds
from bench.measure import Figure, Measure, own_us, rate
from bench.peer import ROOT, Peer, ProcessPeer
from bench.rounds import Result

RESULTS = ROOT / "bench" / "results"
LEAST_SHARE = 0.9
"""Of the rate of handlers that read the data themselves."""
AIM = f"≥ {LEAST_SHARE}x"
PROCESSING = Measure(
    name="processing",
    count=20_000,
    quick_count=5_000,
    sweep=(200,),
    quick_sweep=(200,),
    figures=(
        Figure(
            "processing", "jobs/s", True, rate, f"≥ {LEAST_SHARE}x", lambda _, times: times >= LEAST_SHARE
        ),
        Figure("processing: own CPU", "µs/job", False, own_us),
    ),
)
STYLES = {
    "raw": "job.data",
    "fields": "typed parameters",
    "dataclass": "a dataclass",
    "middleware": "job.data and one middleware",
}
STARTS = {
    "python -c pass": (["-c", "pass"], None),
    "import corral": (["-c", "import corral"], 0.150),
    "from corral import Corral": (["-c", "from corral import Corral"], None),
    "corral --help": (["-m", "corral.cli", "--help"], 0.300),
}
"""What is started, and the seconds it may take on the machine of the published figures."""


def style(name: str) -> Peer:
    return ProcessPeer(STYLES[name], [sys.executable, "-m", "bench.drivers.api_driver", name])


def handlers_table(results: Sequence[Result]) -> Table:
    """Every style of handler with its ratio to the first."""
    table = Table("handlers", "figure", "unit", "value", "times better", "aim")
    for result in results:
        aim = result.figure.aim if result.peer in (STYLES["fields"], STYLES["dataclass"]) else ""
        is_met = result.figure.is_met is None or result.figure.is_met(result.value, result.times)
        table.add_row(
            result.peer,
            result.figure.name,
            result.figure.unit,
            report.number(result.value),
            f"{result.times:.2f}",
            aim,
            style="" if not aim else "green" if is_met else "red",
        )
    return table


def starts(count: int) -> dict[str, list[tuple[float, float]]]:
    """Start each program so many times, in turns; the seconds and the seconds of CPU of each start."""
    readings: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    for _ in range(count):
        for name, (arguments, _) in STARTS.items():
            cpu, begin = _cpu_of_children(), perf_counter()
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
            readings[name].append((perf_counter() - begin, _cpu_of_children() - cpu))
    return readings


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def starts_table(readings: dict[str, list[tuple[float, float]]]) -> Table:
    """The medians, and how many times a Python that does nothing takes of each."""
    table = Table("start", "ms", "CPU, ms", "CPU, times bare Python", "aim")
    bare = median(cpu for _, cpu in readings["python -c pass"])
    for name, (_, aim) in STARTS.items():
        seconds = median(seconds for seconds, _ in readings[name])
        cpu = median(cpu for _, cpu in readings[name])
        table.add_row(
            name,
            f"{seconds * 1000:.0f}",
            f"{cpu * 1000:.0f}",
            f"{cpu / bare:.1f}",
            "" if aim is None else f"< {aim * 1000:.0f} ms",
            style="" if aim is None else "green" if seconds < aim else "red",
        )
    return table


def main() -> None:
    """Measure, print and keep every reading."""
    parser = argparse.ArgumentParser(prog="python -m bench.api", description="The native API.")
    parser.add_argument("--quick", action="store_true", help="few jobs and one round: does it run at all?")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take the median of (5)")
    arguments = parser.parse_args()
    count = 1 if arguments.quick else max(arguments.rounds, 1)
    console = Console()
    ground = rounds.ground()
    console.print(", ".join(f"{what} {which}" for what, which in ground.items()), style="dim")
    peers = [style(name) for name in STYLES]
    with console.status("measuring") as status:
        started = starts(count * 3)
        entries = rounds.run(peers, [PROCESSING], count, arguments.quick, status.update)
    results = rounds.results(entries, [PROCESSING], [peer.name for peer in peers])
    saved = report.save(RESULTS, datetime.now(UTC), entries, results, ground)
    console.print(starts_table(started))
    console.print(handlers_table(results))
    console.print(f"{report.counted(count)}; {saved.relative_to(ROOT)}", style="dim")


if __name__ == "__main__":
    main()
