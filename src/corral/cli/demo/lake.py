"""Step: a lake of the demo's own events, with a report and an audit."""

import tempfile
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from corral.cli.demo.steps import DemoOutput, StepFailed, StepResult, StepSkipped
from corral.cli.lake import spark
from corral.errors import InvalidOptions
from corral.protocols import all_protocols

if TYPE_CHECKING:
    from corral.spark.lake.audit.audit import Audit
    from corral.spark.lake.report.report import ReportTable

QUICK = {
    "spark.driver.memory": "600m",
    # little data: compiling for speed would take longer than it saves
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.pollingDelay": "20ms",
}


@dataclass(frozen=True)
class LakeSummary:
    """The number of events, a row of totals, the report of queues, and the audits."""

    events: int
    totals: Any
    queues: "ReportTable"
    audits: "list[Audit]"


async def keep_history(url: str, output: DemoOutput) -> StepResult:
    """Read every event of every protocol into a lake, report on all jobs, and audit them."""
    started = perf_counter()
    try:
        spark.check_packages()
        spark.check_java()
    except InvalidOptions as error:
        raise StepSkipped(str(error)) from None
    summary = await spark.in_cancellable_thread(lambda: _run(url, output))
    for audit in summary.audits:
        if audit.exit_code:
            findings = [finding.sentence() for finding in audit.findings]
            raise StepFailed("; ".join([f"protocol {audit.protocol}: {audit.sentence()}", *findings]))
    output.table(summary.queues.titles, summary.queues.rows)
    totals = summary.totals
    verdicts = "; ".join(f"{audit.protocol}: {audit.sentence()}" for audit in summary.audits)
    return StepResult(
        title="lake",
        protocol="all",
        jobs=totals["jobs"],
        completed=totals["completed"],
        dead=totals["dead"],
        retries=totals["retries"],
        rate=totals["jobs"] / (perf_counter() - started),
        p95_ms=totals["p95"] or 0.0,
        remark=f"{summary.events:,} events in the lake; {verdicts}",
    )


def _run(url: str, output: DemoOutput) -> LakeSummary:
    from pyspark.sql import functions as sf

    from corral.spark.lake.audit.audit import audit_lake
    from corral.spark.lake.report.report import report_lake
    from corral.spark.lake.run import run_lake
    from corral.spark.lake.tables import Lake
    from corral.spark.options import QueueAddress

    specs = [protocol.spec for protocol in all_protocols()]
    addresses = [QueueAddress(url, spec.name, spec.default_namespace, "*") for spec in specs]
    with (
        tempfile.TemporaryDirectory(prefix="corral-lake-") as folder,
        spark.started("local[2]", {**QUICK, "spark.local.dir": folder}) as spark_session,
    ):
        lake = Lake(f"{folder}/lake")
        with spark.progress_bar(output, "the lake (every protocol)") as on_progress:
            result = run_lake(spark_session, lake, addresses, on_progress=on_progress)
        outcome = sf.col("outcome")
        [totals] = (
            lake.jobs(spark_session)
            .agg(
                sf.count("*").alias("jobs"),
                sf.count_if(outcome == "completed").alias("completed"),
                sf.count_if(outcome == "dead").alias("dead"),
                sf.sum("retries").alias("retries"),
                sf.percentile(sf.unix_millis("ended_at") - sf.unix_millis("added_at"), 0.95).alias("p95"),
            )
            .collect()
        )
        # the workers have stopped, so the lake is up to date
        audits = [audit_lake(spark_session, lake, address, lambda: None) for address in addresses]
        return LakeSummary(result.events, totals, report_lake(spark_session, lake).queues, audits)
