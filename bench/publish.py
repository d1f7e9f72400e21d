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
    picture = docs / "images" / "performance.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(chart, picture)
    return put_between(docs / "performance.md", BEGIN, END, _told(table, ground, rounds, at))


def put_between(page: Path, begin: str, end: str, text: str) -> Path:
    """The page with what was between two marks of it replaced."""
    before, mark, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not mark or not found:
        raise SystemExit(f"{page.name} has lost its marks; put {begin!r} and {end!r} around the table")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")
    return page


def _told(table: str, ground: Mapping[str, str], rounds: int, at: datetime) -> str:
    where = (
        f"{at:%Y-%m-%d}, {counted(rounds)} on {ground['cores']} cores ({ground['machine']}): "
        f"{ground['server']}, Python {ground['python']}, uvloop {ground['uvloop']}, Node {ground['node']}, "
        f"bullmq {ground['bullmq']}. In brackets: the ratio to Node, "
        f"as the median of the rounds' ratios. `@` is the setting at which a system was fastest: "
        f"the concurrency, or for bulk add the jobs per call."
    )
    return f"{where}\n\n{table}\n\n![The same as bars](images/performance.png)"
