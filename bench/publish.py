"""The table and the chart on their way into the docs."""

import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from bench.report import counted

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def publish(
    docs: Path, table: str, chart: Path, ground: Mapping[str, str], rounds: int, at: datetime
) -> Path:
    """The page with what was between its marks replaced by this run."""
    page = docs / "performance.md"
    text = page.read_text()
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{page.name} has lost its marks; put {BEGIN!r} and {END!r} around the table")
    picture = docs / "images" / "performance.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(chart, picture)
    page.write_text(f"{before}{BEGIN}\n{_told(table, ground, rounds, at)}\n{END}{after}")
    return page


def _told(table: str, ground: Mapping[str, str], rounds: int, at: datetime) -> str:
    where = (
        f"{at:%Y-%m-%d}, {counted(rounds)} on {ground['cores']} cores ({ground['machine']}): "
        f"{ground['server']}, Python {ground['python']}, uvloop {ground['uvloop']}, Node {ground['node']}, "
        f"bullmq {ground['bullmq']}. In brackets: how many times better than Node. "
        f"`@` is the concurrency a peer was best at."
    )
    return f"{where}\n\n{table}\n\n![The same as bars](images/performance.png)"
