"""Work off a queue on the executors of a cluster, and print what was done."""

import json
import sys

from corral.spark import session, work
from tests.spark.clusters import SMALL

CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SMALL,
    "spark.driver.extraJavaOptions": SMALL,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.speculation": "true",
    "spark.log.level": "ERROR",
}


def main(master: str, app: str, queue: str, partitions: str, start_timeout: str) -> None:
    spark = session(master, conf=CONF)
    print("started", flush=True)
    summary = work(
        spark, app, queue=queue, partitions=int(partitions), until="idle", start_timeout=float(start_timeout),
        lock_ms=4000, recover_ms=2000, max_stalls=1000, max_events=100_000_000,
    )  # fmt: skip
    print(json.dumps({"outcomes": summary.outcomes, "submissions": summary.submissions}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
