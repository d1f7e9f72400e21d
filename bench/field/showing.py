"""The field as a table and a chart."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.report import counted

BEGIN, END = "<!-- field: begin -->", "<!-- field: end -->"


@dataclass(frozen=True)
class Line:
    """One peer: its medians, and the setting it was best at."""

    name: str
    adding: float
    processing: float
    setting: int | None

    def cells(self, ours: "Line") -> list[str]:
        if self is ours:
            times = ""
        else:
            times = f"{ours.adding / self.adding:.1f}x / {ours.processing / self.processing:.1f}x"
        return [self.name, f"{self.adding:,.0f}", f"{self.processing:,.0f}", str(self.setting), times]


def markdown(lines: Sequence[Line], rounds: int) -> str:
    head = ["", "bulk add, jobs/s", "processing, jobs/s", "at", "Corral is faster by (add / process)"]
    body = [line.cells(lines[0]) for line in lines]
    rows = [head, ["---", "---:", "---:", "---:", "---:"], *body]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return (
        f"{counted(rounds).capitalize()} in one run, one process each, handlers that do nothing; `at`: the "
        f"concurrency or number of threads at which a system was fastest.\n\n{table}\n\n"
        f"![The same as bars](images/field.png)"
    )


def chart(lines: Sequence[Line], path: Path) -> Path:
    """Bars for processing and adding, the fastest on top."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 0.42 * len(lines) + 1.2), sharey=True)
    names = [line.name for line in reversed(lines)]
    for axis, what, values in (
        (axes[0], "processing, jobs/s", [line.processing for line in reversed(lines)]),
        (axes[1], "bulk add, jobs/s", [line.adding for line in reversed(lines)]),
    ):
        colours = ["#2f6f4f" if name == "Corral" else "#b9c0c7" for name in names]
        bars = axis.barh(names, values, color=colours)
        axis.bar_label(bars, [f"{value:,.0f}" for value in values], padding=4, fontsize=8)
        axis.set_title(what, fontsize=10)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.set_xticks([])
        axis.margins(x=0.18)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path
