"""`python -m bench [--quick] [--rounds N] [--publish]`."""

import argparse
from datetime import UTC, datetime

from rich.console import Console

from bench import chart, report, rounds
from bench.measures import MEASURES
from bench.peer import BASELINE, ROOT, peers
from bench.publish import publish

RESULTS = ROOT / "bench" / "results"


def main() -> None:
    """Measure, and tell it three ways."""
    arguments = _arguments()
    console = Console()
    everyone = peers()
    names = [peer.name for peer in everyone]
    ground = rounds.ground()
    console.print(", ".join(f"{what} {which}" for what, which in ground.items()), style="dim")
    with console.status("measuring") as status:
        entries = rounds.run(everyone, MEASURES, arguments.rounds, arguments.quick, status.update)
    results = rounds.results(entries, MEASURES, names)
    at = datetime.now(UTC)
    saved = report.save(RESULTS, at, entries, results, ground)
    picture = saved.with_suffix(".png")
    chart.draw(picture, results, names, arguments.rounds)
    swept = report.sweeps(entries, MEASURES, names)
    console.print(report.terminal(results, swept, names))
    console.print(f"{report.counted(arguments.rounds)}; in brackets: how many times better than {BASELINE}")
    console.print(f"{saved.relative_to(ROOT)}, {picture.relative_to(ROOT)}", style="dim")
    if arguments.publish:
        table = report.markdown(results, swept, names)
        page = publish(ROOT / "docs", table, picture, ground, arguments.rounds, at)
        console.print(f"published in {page.relative_to(ROOT)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="The peers side by side in one run.")
    parser.add_argument("--quick", action="store_true", help="few jobs and one round: does it run at all?")
    parser.add_argument("--rounds", type=int, help="rounds to take the median of (5; with --quick 1)")
    parser.add_argument("--publish", action="store_true", help="put the table and the chart into docs/")
    arguments = parser.parse_args()
    if arguments.rounds is None:
        arguments.rounds = 1 if arguments.quick else 5
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds} is no number of rounds; use 1 or more")
    return arguments


if __name__ == "__main__":
    main()
