"""`python -m bench.field [--rounds N] [--publish]`: Corral beside every other job system for Python."""

import argparse
from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table
from tests.support.servers import start_valkey

from bench.field.peers import FIELD
from bench.field.showing import BEGIN, END, Line, chart, markdown
from bench.peer import BASELINE, DROP_IN, ROOT, Peer, Task, peers
from bench.publish import put_between

OUR_JOBS = 30_000
THEIR_ADDED_JOBS = 10_000
OUR_SETTINGS = (100, 200, 400)
MEASURES = ("bulk_add", "processing")


def main() -> None:
    """Measure everyone in one run, in an order that changes from round to round."""
    arguments = _arguments()
    console = Console()
    with console.status("installing the field") as status:
        for peer in FIELD:
            status.update(f"installing {peer.name}")
            peer.install()
        lines = _measured(arguments.rounds, status.update)
    table = Table()
    for column in ("", "bulk add jobs/s", "processing jobs/s", "at", "Corral is faster by"):
        table.add_column(column, justify="left" if not column else "right")
    for line in lines:
        table.add_row(*line.cells(lines[0]))
    console.print(table)
    if arguments.publish:
        picture = chart(lines, ROOT / "docs" / "images" / "field.png")
        page = put_between(ROOT / "docs" / "performance.md", BEGIN, END, markdown(lines, arguments.rounds))
        console.print(f"published in {page.relative_to(ROOT)} and {picture.relative_to(ROOT)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.field", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds to take the median of (3)")
    parser.add_argument("--publish", action="store_true", help="put the table and the chart into docs/")
    return parser.parse_args()


def _measured(rounds: int, say: Callable[[str], None]) -> list[Line]:
    """Our own line first, then the field's, the fastest before the slower."""
    readings: dict[tuple[str, str, int | None], list[float]] = {}
    server = start_valkey()
    try:
        for number in range(rounds):
            for measure in MEASURES:
                for name, setting, task, peer in _tasks(measure, server.url, number):
                    say(f"round {number + 1}: {measure}: {name} at {setting}")
                    with server.connect() as client:
                        client.execute_command("FLUSHALL", "SYNC")
                    reading = peer.measure(task)
                    rate = reading["count"] / reading["seconds"]
                    readings.setdefault((name, measure, setting), []).append(rate)
    finally:
        server.stop()
    names = ["Corral", BASELINE, DROP_IN, *(peer.name for peer in FIELD)]
    lines = [_line(name, readings) for name in names]
    return [lines[0], *sorted(lines[1:], key=lambda line: -line.processing)]


Trial = tuple[str, int | None, Task, Peer]


def _tasks(measure: str, url: str, number: int) -> list[Trial]:
    everyone: list[Trial] = []
    known = peers()
    by_name = {peer.name: peer for peer in known}
    for name, peer in (("Corral", known[-1]), (BASELINE, by_name[BASELINE]), (DROP_IN, by_name[DROP_IN])):
        for setting in OUR_SETTINGS if measure == "processing" else (None,):
            task = {"measure": measure, "url": url, "count": OUR_JOBS, "setting": setting}
            everyone.append((name, setting, task, peer))
    for one in FIELD:
        is_processing = measure == "processing"
        count = one.jobs if is_processing else THEIR_ADDED_JOBS
        for setting in one.settings if is_processing else (None,):
            task = {"measure": measure, "url": url, "count": count, "setting": setting}
            everyone.append((one.name, setting, task, one.peer()))
    turn = number * 5 % len(everyone)
    return [*everyone[turn:], *everyone[:turn]]


def _line(name: str, readings: dict[tuple[str, str, int | None], list[float]]) -> Line:
    adding = median(readings[name, "bulk_add", None])
    tried = {
        setting: median(rates)
        for (who, measure, setting), rates in readings.items()
        if who == name and measure == "processing"
    }
    best = max(tried, key=tried.__getitem__)
    return Line(name, adding, tried[best], best)


if __name__ == "__main__":
    main()
