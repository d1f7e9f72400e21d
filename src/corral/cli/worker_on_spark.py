"""`corral worker --on MASTER`: a worker in each task of a Spark job."""

import re
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

import typer

from corral.app_loader import load_app
from corral.cli.lake.spark import SparkOptions, check_java, started
from corral.cli.output import Output
from corral.cli.session import errors_to
from corral.errors import InvalidOptions
from corral.telemetry import logs

CONNECT_S = 5.0
_MASTER = re.compile(r"local(\[(\*|[0-9]+)(,[0-9]+)?\])?|local-cluster\[.+\]|spark://\S+|yarn|k8s://\S+")
_ADDRESS = re.compile(r"([^:,/]+|\[[0-9a-fA-F:]+\]):([0-9]{1,5})")


class WorkOptions(NamedTuple):
    """What the command was given."""

    app: str
    master: str
    conf: list[str]
    slots: Mapping[str, int]
    protocol: str | None
    processes: int | None
    concurrency: int
    grace: float
    burst: bool
    name: str | None
    url: str | None
    log_level: str
    routing: Mapping[str, Any]


def run_on_spark(output: Output, options: WorkOptions) -> None:
    """Start Spark, work until idle or until a signal comes, and print what was done."""
    with errors_to(output):
        check_master(options.master)
        # what the app itself refuses is refused before Spark starts
        load_app(options.app, options.url).workers(
            concurrency=options.concurrency,
            name=options.name,
            queues=options.slots,
            protocol=options.protocol,
            **options.routing,
        )
        settings = {"spark.ui.enabled": "true", **SparkOptions(options.master, options.conf).settings}
        logs.configure(options.log_level, json=True if output.as_json else None)
        check_java()
        with started(options.master, settings) as spark:
            from corral.spark import work

            summary = work(
                spark,
                options.app,
                queue=options.slots,
                protocol=options.protocol,
                partitions=options.processes,
                until="idle" if options.burst else "forever",
                concurrency=options.concurrency,
                grace=options.grace,
                name=options.name,
                url=options.url,
                log_level=options.log_level,
                **options.routing,
            )
    output.document({"outcomes": dict(summary.outcomes), "stopped": summary.is_stopped})
    counts = [f"{count:,} {outcome}" for outcome, count in sorted(summary.outcomes.items())]
    output.line("stopped" if summary.is_stopped else ", ".join(counts) or "there was nothing to do")
    raise typer.Exit(0)


def check_master(master: str) -> None:
    """Refuse what is no master, and a standalone one that does not answer: Spark would try for a minute."""
    if not _MASTER.fullmatch(master):
        raise InvalidOptions(
            f"--on is {master!a}, which is no master of Spark; use local[4], spark://host:7077, yarn or k8s://…"
        )
    if not master.startswith("spark://"):
        return
    addresses = _ADDRESS.findall(master)
    if not addresses:
        raise InvalidOptions(f"--on is {master!a}; write host and port, such as spark://host:7077")
    for host, port in addresses:
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
            return
        except (OSError, OverflowError):
            continue
    raise InvalidOptions(f"no Spark master answers at {master}; start one, or correct --on")
