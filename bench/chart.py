"""The results as a picture."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from bench.measure import Figure
from bench.peer import BASELINE
from bench.report import counted, figures_of, number, result_of
from bench.rounds import Result

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

COLOURS = ("#9aa5b1", "#2f6f9f", "#3f9f6f", "#b5762f", "#8a4f9f")


def draw(path: Path, results: Sequence[Result], peers: Sequence[str], rounds: int) -> None:
    """One small chart for each figure; the bars are medians, the whiskers the lowest and highest round."""
    figures = figures_of(results)
    across = 2
    down = -(-len(figures) // across)
    picture, grid = plt.subplots(down, across, figsize=(11, 1.1 + down * (0.7 + 0.32 * len(peers))))
    for axes, figure in zip(grid.flat, figures, strict=False):
        _bars(axes, figure, results, peers)
    for axes in list(grid.flat)[len(figures) :]:
        axes.set_visible(False)
    picture.suptitle(f"Corral and {BASELINE} on one server: {counted(rounds)}", fontsize=12)
    picture.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
    plt.close(picture)


def _bars(axes: Axes, figure: Figure, results: Sequence[Result], peers: Sequence[str]) -> None:
    own = [result_of(results, figure, peer) for peer in peers]
    values = [result.value for result in own]
    spread = [
        [result.value - result.lowest for result in own],
        [result.highest - result.value for result in own],
    ]
    places = range(len(peers))
    axes.barh(places, values, xerr=spread, color=COLOURS, error_kw={"elinewidth": 0.8, "capsize": 2})
    axes.set_yticks(places, peers, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, max(result.highest for result in own) * 1.35)
    for place, result in enumerate(own):
        label = number(result.value) + ("" if result.peer == BASELINE else f"  ({result.times:.2f}x)")
        axes.text(result.highest, place, f"  {label}", va="center", fontsize=8)
    way = "more is better" if figure.is_more_better else "less is better"
    axes.set_title(f"{figure.name} ({figure.unit}, {way})", fontsize=9, loc="left")
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
