"""The lake over the demo's own events: every job's history in files, a short report, and an audit."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from corral.cli import sparks
from corral.cli.demo.stage import Broken, Report, Skipped, Stage
from corral.errors import InvalidOptions
from corral.protocols import PROTOCOLS

if TYPE_CHECKING:
    from corral.spark.lake.audit.audit import Audit
    from corral.spark.lake.report.report import ReportTable
    from corral.spark.options import QueueAddress

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
class _Told:
    """What Spark found."""

    events: int
    jobs: Any
    queues: "ReportTable"
    audits: "list[Audit]"


async def keep_history(url: str, stage: Stage) -> Report:
    """Read every event of every protocol into a lake, report on every job, look for lost ones."""
    began = perf_counter()
    try:
        sparks.check_packages()
        sparks.check_java()
    except InvalidOptions as error:
        raise Skipped(str(error)) from None
    told = await sparks.ended_when_cancelled(lambda: _work(url, stage))
    for audit in told.audits:
        if audit.exit_code:
            found = [finding.sentence() for finding in audit.findings]
            raise Broken("; ".join([f"protocol {audit.protocol}: {audit.sentence()}", *found]))
    stage.show(told.queues.titles, told.queues.rows)
    row = told.jobs
    verdicts = "; ".join(f"{audit.protocol}: {audit.sentence()}" for audit in told.audits)
    return Report(
        title="lake",
        protocol="all",
        jobs=row["jobs"],
        completed=row["completed"],
        dead=row["dead"],
        retries=row["retries"],
        rate=row["jobs"] / (perf_counter() - began),
        p95_ms=row["p95"] or 0.0,
        remark=f"{told.events:,} events in the lake; {verdicts}",
    )


def _work(url: str, stage: Stage) -> _Told:
    from pyspark.sql import functions as sf

    from corral.spark.lake.audit.audit import audit_lake
    from corral.spark.lake.report.report import report_lake
    from corral.spark.lake.run import run_lake
    from corral.spark.lake.tables import Lake

    addresses = _addresses(url)
    with (
        tempfile.TemporaryDirectory(prefix="corral-lake-") as folder,
        sparks.started("local[2]", {**QUICK, "spark.local.dir": folder}) as spark,
    ):
        lake = Lake(f"{folder}/lake")
        with sparks.bar(stage.screen, "the lake (every protocol)") as tell:
            ran = run_lake(spark, lake, addresses, on_progress=tell)
        of = sf.col("outcome")
        [row] = (
            lake.jobs(spark)
            .agg(
                sf.count("*").alias("jobs"),
                sf.count_if(of == "completed").alias("completed"),
                sf.count_if(of == "dead").alias("dead"),
                sf.sum("retries").alias("retries"),
                sf.percentile(sf.unix_millis("ended_at") - sf.unix_millis("added_at"), 0.95).alias("p95"),
            )
            .collect()
        )
        # nobody works any more, so the lake reaches to the present
        audits = [audit_lake(spark, lake, address, lambda: None) for address in addresses]
        return _Told(ran.events, row, report_lake(spark, lake).queues, audits)


def _addresses(url: str) -> "Sequence[QueueAddress]":
    from corral.spark.options import QueueAddress

    return [
        QueueAddress(url, protocol.spec.name, protocol.spec.default_namespace, "*") for protocol in PROTOCOLS
    ]
