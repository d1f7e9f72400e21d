"""A report as one self-contained HTML page: it makes no requests, and all text in it is escaped."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from corral.spark.lake.gold import QUANTILES
from corral.spark.lake.report import charts
from corral.spark.lake.report.charts import ChartLine, text
from corral.spark.lake.report.report import LakeReport, QueueSeries, ReportTable

POLICY = "default-src 'none'; style-src 'unsafe-inline'"

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --rule: #d9dee5; --paper: #fff;
  --good: #2f8f5b; --bad: #c0392b; --a: #2f6f9f; --b: #b5762f; --c: #8a4f9f; --alert: #fdecea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa5b4; --rule: #333c49;
  --paper: #14181f;
  --good: #5cc08a; --bad: #ef7b6d; --a: #6fb1e0; --b: #e0a968; --c: #c08fd6; --alert: #3a1f1d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 74rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: .95rem; margin: 1.2rem 0 .2rem; color: var(--soft); font-weight: 600; }
p.span { color: var(--soft); margin: .2rem 0 1rem; }
.alert { background: var(--alert); border-left: 4px solid var(--bad); padding: .6rem .9rem; margin: .5rem 0; }
.fine { border-left: 4px solid var(--good); padding: .6rem .9rem; margin: .5rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; unicode-bidi: isolate; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
svg { width: 100%; height: auto; display: block; font: 11px system-ui, sans-serif; }
svg text { fill: var(--soft); } .grid { stroke: var(--rule); } .line { stroke-width: 1.6; }
.ink-good { stroke: var(--good); fill: var(--good); } .ink-bad { stroke: var(--bad); fill: var(--bad); }
.ink-a { stroke: var(--a); fill: var(--a); } .ink-b { stroke: var(--b); fill: var(--b); }
.ink-c { stroke: var(--c); fill: var(--c); } .area { opacity: .18; stroke: none; }
polyline.line { fill: none; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(21rem, 1fr)); gap: .5rem 2rem; }
"""


def page(report: LakeReport, title: str = "Job history") -> str:
    """Return the page."""
    body = [
        f"<h1>{text(title)}</h1>",
        f'<p class="span">{text(_span(report))}</p>',
        *_alerts(report),
        *(part for series in report.series for part in _queue(series)),
        *(
            part
            for title, rows in report.bars.items()
            if rows
            for part in (f"<h2>{text(title)}</h2>", charts.bars(title, rows))
        ),
        *(table_html(table) for table in report.tables if table.rows),
    ]
    return document(title, body)


def document(title: str, body: Sequence[str]) -> str:
    """Return a whole page with these parts."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def write_page(report: LakeReport, path: str | Path, title: str = "Job history") -> Path:
    """Write the page to a file; return its path."""
    return write_document(page(report, title), path)


def write_document(html: str, path: str | Path) -> Path:
    """Write a page to a file, in a folder that is made; return its path."""
    target = Path(path).expanduser()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(html, encoding="utf-8")
    return target


def _span(report: LakeReport) -> str:
    if report.is_empty or report.since is None or report.until is None:
        return "No jobs in this time."
    return f"{_at(report.since)} to {_at(report.until)}, UTC"


def _at(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def _alerts(report: LakeReport) -> list[str]:
    if not report.alerts:
        return [] if report.is_empty else ['<p class="fine">No alerts: attempts did not stall.</p>']
    return [f'<p class="alert" role="alert">{text(alert)}</p>' for alert in report.alerts]


def _queue(series: QueueSeries) -> list[str]:
    step = "minute" if series.step_minutes == 1 else f"{series.step_minutes} minutes"
    points, moments = series.points, [point.at for point in series.points]
    throughput = [
        ChartLine("completed", "good", [point.completed for point in points], is_area=True),
        ChartLine("dead", "bad", [point.dead for point in points]),
        ChartLine("retries", "b", [point.retries for point in points]),
        ChartLine("stalled", "c", [point.stalled for point in points]),
    ]
    behind = [ChartLine("behind", "a", [point.behind for point in points], is_area=True)]
    waited, ran = [point.waited for point in points], [point.ran for point in points]
    drawings = {
        f"Throughput, jobs per {step}": charts.counts(moments, throughput, series.step_minutes),
        "Behind, jobs added and not ended": charts.counts(moments, behind, series.step_minutes),
        "Waited, from claimable to claimed": charts.bands(moments, _bands(waited), series.step_minutes),
        "Ran, from claimed to its end": charts.bands(moments, _bands(ran), series.step_minutes),
    }
    return [
        f"<h2>{text(series.queue)} ({text(series.protocol)})</h2>",
        '<div class="charts">',
        *(f"<div><h3>{text(title)}</h3>{svg}</div>" for title, svg in drawings.items()),
        "</div>",
    ]


def _bands(times: Sequence[tuple[float | None, ...]]) -> list[ChartLine]:
    inks = zip(QUANTILES, ("a", "b", "c"), strict=True)
    return [ChartLine(name, ink, [each[index] for each in times]) for index, (name, ink) in enumerate(inks)]


def table_html(table: ReportTable) -> str:
    """Return a table with its title."""
    head = "".join(f'<th scope="col">{text(title)}</th>' for title in table.titles)
    rows = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return (
        f'<h2>{text(table.title)}</h2><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
