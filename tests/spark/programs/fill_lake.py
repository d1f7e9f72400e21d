"""`fill_lake MASTER URL LAKE once|on BATCH [before|after N]`: keep a lake, to the present or until killed.

With `before 3` it kills itself just before its third commit, with `after 3` just after it.
"""

import os
import signal
import sys
from dataclasses import asdict
from itertools import count
from json import dumps
from typing import Any

from corral.spark import session
from corral.spark.lake import bronze, delta, maintenance, refresh
from corral.spark.lake.ingest import LakeProgress
from corral.spark.lake.run import RunOptions, run_lake
from corral.spark.lake.tables import Lake
from corral.spark.options import QueueAddress
from tests.spark.programs.whole_way import QUICK


def die_at(when: str, number: int) -> None:
    """Kill this process group around one of its commits."""
    commits = count(1)

    def commit_and_die(*arguments: Any, **options: Any) -> None:
        is_due = next(commits) == number
        if not (is_due and when == "before"):
            delta.commit(*arguments, **options)
        if is_due:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    for module in (bronze, refresh, maintenance):
        module.commit = commit_and_die  # type: ignore[attr-defined]


def main(master: str, url: str, folder: str, how: str, batch_events: str, *death: str) -> None:
    spark = session(master, conf=QUICK)
    if death:
        die_at(death[0], int(death[1]))
    print("started", flush=True)

    def tell(progress: LakeProgress) -> None:
        print(dumps(asdict(progress)), flush=True)

    options = RunOptions(
        is_continuous=how == "on",
        every_s=0.01,
        refresh_s=1.0,
        compact_after=4,
        batch_events=int(batch_events),
    )
    where = QueueAddress(url, "bullmq", "bull", "mail")
    print(dumps(asdict(run_lake(spark, Lake(folder), [where], options, tell))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
