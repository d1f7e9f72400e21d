"""`fill_lake MASTER URL LAKE once|on BATCH`: keep a lake, once to the present or on and on, until killed."""

import sys
from dataclasses import asdict
from json import dumps

from corral.spark import session
from corral.spark.lake.ingest import LakeProgress
from corral.spark.lake.run import RunOptions, run_lake
from corral.spark.lake.tables import Lake
from corral.spark.options import QueueAddress
from tests.spark.programs.whole_way import QUICK


def main(master: str, url: str, folder: str, how: str, batch_events: str) -> None:
    spark = session(master, conf=QUICK)
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
