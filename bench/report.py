"""The results as a table, a chart and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.measure import Figure, Measure
from bench.peer import BASELINE
from bench.rounds import Entry, Result, by_setting

Cell = tuple[str, str]
"""(what the cell says, is the aim met: "yes", "no", or "")"""


def figures_of(results: Sequence[Result]) -> list[Figure]:
    return list({result.figure.name: result.figure for result in results}.values())


def result_of(results: Sequence[Result], figure: Figure, peer: str) -> Result:
    return next(result for result in results if result.figure.name == figure.name and result.peer == peer)


def number(value: float) -> str:
    """As many digits as mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rows(results: Sequence[Result], peers: Sequence[str]) -> list[list[Cell]]:
    """The table's rows: figure, unit, the peers' medians with their ratio to the baseline, the aim."""
    table = []
    for figure in figures_of(results):
        row: list[Cell] = [(figure.name, ""), (figure.unit, "")]
        for peer in peers:
            result = result_of(results, figure, peer)
            at = "" if result.setting is None else f" @{result.setting}"
            if peer == BASELINE:
                row.append((f"{number(result.value)}{at}", ""))
                continue
            is_met = figure.is_met and figure.is_met(result.value, result.times)
            met = "" if is_met is None else "yes" if is_met else "no"
            row.append((f"{number(result.value)}{at} ({result.times:.2f}x)", met))
        table.append([*row, (figure.aim, "")])
    return table


def header(peers: Sequence[str]) -> list[str]:
    return ["", "unit", *peers, "aim"]


def sweeps(entries: Sequence[Entry], measures: Sequence[Measure], peers: Sequence[str]) -> list[list[str]]:
    """For each measure that has settings: its first figure at each of them."""
    table = []
    for measure in measures:
        first = measure.figures[0]
        own = [entry for entry in entries if entry.measure == measure.name and entry.setting is not None]
        medians = [by_setting([entry for entry in own if entry.peer == peer], first) for peer in peers]
        for setting in medians[0]:
            values = [number(of_peer[setting]) for of_peer in medians]
            table.append([f"{first.name} @{setting}", first.unit, *values])
    return table


def counted(rounds: int) -> str:
    return "one round" if rounds == 1 else f"the medians of {rounds} rounds"


def terminal(results: Sequence[Result], swept: Sequence[Sequence[str]], peers: Sequence[str]) -> Table:
    """For people at a terminal: green where the aim is met, red where it is not."""
    table = Table()
    for place, name in enumerate(header(peers)):
        table.add_column(name, justify="left" if place < 2 else "right")
    colours = {"yes": "green", "no": "red"}
    for row in rows(results, peers):
        table.add_row(*(f"[{colours[met]}]{text}[/]" if met else text for text, met in row))
    table.add_section()
    for line in swept:
        table.add_row(*line, style="dim")
    return table


def markdown(results: Sequence[Result], swept: Sequence[Sequence[str]], peers: Sequence[str]) -> str:
    """For the docs."""
    first = [[text for text, _ in row] for row in rows(results, peers)]
    return f"{_markdown(header(peers), first)}\n\n{_markdown(header(peers)[:-1], swept)}"


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def save(
    folder: Path,
    at: datetime,
    entries: Sequence[Entry],
    results: Sequence[Result],
    ground: Mapping[str, str],
) -> Path:
    """Everything that was read, for whoever wants to reckon again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{at:%Y%m%d-%H%M%S}.json"
    document: dict[str, Any] = {
        "at": at.isoformat(timespec="seconds"),
        "ground": dict(ground),
        "results": [
            {
                "figure": result.figure.name,
                "unit": result.figure.unit,
                "peer": result.peer,
                "setting": result.setting,
                "median": result.value,
                "times": result.times,
                "lowest": result.lowest,
                "highest": result.highest,
            }
            for result in results
        ],
        "entries": [asdict(entry) for entry in entries],
    }
    path.write_text(json.dumps(document, indent=1))
    return path
