"""A capacity plan as tables, and as one self-contained HTML page with charts."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from corral.spark.lake.capacity.history import WEEK_HOURS
from corral.spark.lake.capacity.plan import CapacityPlan, HourNeed, Scenario
from corral.spark.lake.capacity.scale import ScaleRow
from corral.spark.lake.report import charts
from corral.spark.lake.report.charts import ChartLine, text
from corral.spark.lake.report.page import document, table_html
from corral.spark.lake.report.report import ReportTable, duration

MONDAY = datetime(2024, 1, 1)
"""Any: only the day of the week is shown."""
FORM = "%a %H:%M"


def answer(plan: CapacityPlan) -> str:
    """Return the answer in a sentence."""
    options, need, wait_ms = plan.options, plan.needed, plan.peak.p95_ms
    target, wait = duration(options.target_ms), duration(wait_ms)
    fleet = f"{_count(need.workers, 'worker')} with {_count(need.slots, 'slot')} together"
    if options.workers is None:
        verb = "keeps" if need.workers == 1 else "keep"
        said = f"{fleet} {verb} the p95 wait below {target} in every hour; it is {wait} in {need.hour}"
    else:
        verb = "below" if wait_ms <= options.target_ms else "above"
        said = f"with {fleet} the p95 wait is {wait} in {need.hour}, {verb} {target}"
    recovered = plan.scenarios[-1].recovered_ms
    if recovered is None:
        return said
    outage = duration(options.failover_ms)
    return f"{said}; {duration(recovered)} after a failover of {outage} new jobs wait no longer than that"


def tables(plan: CapacityPlan) -> tuple[ReportTable, ...]:
    """Return the plan as tables: cases, the hours that need most, and the plan past one machine."""
    hours = sorted(plan.hours, key=lambda need: (-need.slots, -need.hour.busiest_slots))[:10]
    return (
        ReportTable("Workers and slots", _CASE_TITLES, tuple(_case(one) for one in plan.scenarios)),
        ReportTable("Hours of the week (UTC) with the most work", _HOUR_TITLES, tuple(map(_hour, hours))),
        ReportTable("Past one machine", _SCALE_TITLES, tuple(map(_scale, plan.scale.rows))),
    )


def notes(plan: CapacityPlan) -> tuple[str, ...]:
    """Return what the plan is based on, and where its limits are."""
    costs, scale = plan.scale.costs, plan.scale
    return (
        f"from {plan.attempts:,} attempts of {plan.jobs:,} jobs, {plan.since:%Y-%m-%d %H:%M} to "
        f"{plan.until:%Y-%m-%d %H:%M} UTC; an attempt took {duration(plan.mean_ms)} on average",
        f"first limit: {scale.first_limit}",
        f"costs per job: {costs.add_server_us:g} µs of the server to add, {costs.job_server_us:g} µs to "
        f"claim and settle, {costs.job_worker_us:g} µs of the worker; {costs.events_per_second:,.0f} events "
        f"a second into the lake on {costs.events_cores} cores ({costs.measured}); processors are used to "
        f"{scale.utilisation:.0%}",
    )


def page(plan: CapacityPlan) -> str:
    """Return the page."""
    by_number = {need.hour.number: need for need in plan.hours}
    needs = [by_number.get(number) for number in range(WEEK_HOURS)]
    moments = [MONDAY + timedelta(hours=number) for number in range(WEEK_HOURS)]
    arrivals = [
        ChartLine("jobs an hour", "good", [need.hour.jobs if need else 0 for need in needs], is_area=True)
    ]
    slots = [
        ChartLine("needed in the busiest", "a", [need.slots if need else 0 for need in needs]),
        ChartLine("busy on average", "b", [need.hour.busy_slots if need else 0 for need in needs], True),
    ]
    drawings = {
        "Arrivals by hour of the week (UTC), on average": charts.counts(moments, arrivals, 60, FORM),
        "Slots by hour of the week (UTC)": charts.counts(moments, slots, 60, FORM),
        "p95 wait by hour of the week (UTC), predicted": _waits(moments, needs),
    }
    curve = [
        (f"{point.slots} slots, {point.utilisation:.0%} busy: {duration(point.p95_ms)}", round(point.p95_ms))
        for point in plan.curve
    ]
    first, *rest = tables(plan)
    body = [
        f"<h1>{text(f'Capacity of {plan.queue} ({plan.protocol})')}</h1>",
        f'<p class="span">{text(notes(plan)[0])}</p>',
        f'<p class="{_kind(plan)}">{text(_sentence(answer(plan)))}.</p>',
        table_html(first),
        f'<div class="charts">{"".join(map(_drawing, drawings.items()))}</div>',
        "<h2>p95 wait of the peak by slots, ms</h2>",
        charts.bars("p95 wait by slots, ms", curve, "a"),
        *map(table_html, rest),
        *(f"<p>{text(_sentence(note))}.</p>" for note in notes(plan)[1:]),
    ]
    return document(f"Capacity of {plan.queue}", body)


def _waits(moments: Sequence[datetime], needs: Sequence[HourNeed | None]) -> str:
    waits = ChartLine("p95", "a", [need.p95_ms if need else None for need in needs])
    return charts.bands(moments, [waits], 60, FORM)


def _drawing(item: tuple[str, str]) -> str:
    title, svg = item
    return f"<div><h3>{text(title)}</h3>{svg}</div>"


def _kind(plan: CapacityPlan) -> str:
    return "fine" if plan.peak.p95_ms <= plan.options.target_ms else "alert"


def _sentence(said: str) -> str:
    return said[:1].upper() + said[1:]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_CASE_TITLES = (
    "case", "workers", "slots", "peak", "p50 wait", "p95 wait", "p99 wait", "longest", "slots busy",
    "recovered after",
)  # fmt: skip


def _case(scenario: Scenario) -> tuple[str, ...]:
    one = scenario.prediction
    return (
        scenario.title,
        f"{one.workers:,}",
        f"{one.slots:,}",
        one.hour,
        *(duration(wait) for wait in (one.p50_ms, one.p95_ms, one.p99_ms, one.worst_ms)),
        f"{one.utilisation:.0%}",
        duration(scenario.recovered_ms),
    )


_HOUR_TITLES = (
    "hour",
    "jobs",
    "slots busy",
    "jobs, busiest",
    "slots busy, busiest",
    "slots",
    "p95 wait",
)


def _hour(need: HourNeed) -> tuple[str, ...]:
    hour = need.hour
    return (
        hour.name,
        f"{hour.jobs:,.0f}",
        f"{hour.busy_slots:,.2f}",
        f"{hour.busiest_jobs:,}",
        f"{hour.busiest_slots:,.2f}",
        f"{need.slots:,}",
        duration(need.p95_ms),
    )


_SCALE_TITLES = (
    "jobs/s", "shards", "queues", "processes", "slots", "Spark cores", "events kept",
    "lake per day", "first limit",
)  # fmt: skip


def _scale(row: ScaleRow) -> tuple[str, ...]:
    return (
        f"{row.jobs_per_second:,}",
        f"{row.shards:,}",
        f"{row.queues:,}",
        f"{row.worker_processes:,}",
        f"{row.slots:,}",
        f"{row.executor_cores:,}",
        f"{row.kept_events:,}",
        f"{row.lake_bytes_per_day / 1e9:,.0f} GB",
        row.limit,
    )
