"""The table and the chart on their way into the docs, and the costs of a job into the plan of capacity."""

import json
import re
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from bench.report import counted

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
COSTS = Path(__file__).resolve().parents[1] / "src/corral/spark/lake/capacity/costs.json"
COST_FIGURES = {
    "add_server_us": "bulk add: server's CPU",
    "job_server_us": "processing: server's CPU",
    "job_worker_us": "processing: own CPU",
    "adds_per_second": "one add at a time",
}
PLAIN_CORRAL = 4
"""The column of the table, counted from 1 after its first bar: Corral on asyncio, as `corral worker` runs."""


def publish(
    docs: Path, table: str, chart: Path, ground: Mapping[str, str], rounds: int, at: datetime
) -> Path:
    """The page with what was between its marks replaced by this run."""
    picture = docs / "images" / "performance.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(chart, picture)
    page = put_between(docs / "performance.md", BEGIN, END, _told(table, ground, rounds, at))
    where = f"{ground['cores']} cores ({ground['machine']}), {ground['server']}, Python {ground['python']}"
    known = json.loads(COSTS.read_text())
    costs = {**known, "measured": f"{at:%Y-%m-%d}, {where}", **published_costs(page.read_text())}
    COSTS.write_text(json.dumps(costs, indent=1) + "\n")
    return page


def published_costs(page: str) -> dict[str, float]:
    """The costs of a job, as the table of the page has them."""
    costs = {}
    for name, figure in COST_FIGURES.items():
        [row] = re.findall(rf"^\| {re.escape(figure)} \|.*", page, re.MULTILINE)
        costs[name] = float(row.split("|")[PLAIN_CORRAL].split()[0].replace(",", ""))
    return costs


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
