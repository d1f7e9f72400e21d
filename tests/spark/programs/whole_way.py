"""`whole_way MASTER URL LAKE smoke|bronze|whole`: events read, rows into jobs, a lake filled."""

import json
import sys
from typing import Any

from corral.spark import session
from corral.spark.lake.ingest import ingest
from corral.spark.lake.run import run_lake
from corral.spark.lake.tables import Lake
from corral.spark.options import QueueAddress
from tests.spark.clusters import SMALL
from tests.spark.lakes import plain_ids

QUICK = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": SMALL,
    "spark.executor.extraJavaOptions": SMALL,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.log.level": "ERROR",
}


def fill(spark: Any, lake: Lake, where: QueueAddress, how: str) -> dict[str, Any]:
    if how == "whole":
        run_lake(spark, lake, [where])
    else:
        ingest(spark, lake, [where])
    ids = plain_ids(lake)
    outcomes = lake.jobs(spark).groupBy("outcome").count().collect()
    return {
        "bronze": len(ids),
        "distinct": len(set(ids)),
        "outcomes": {row["outcome"]: row["count"] for row in outcomes},
    }


def main(master: str, url: str, folder: str, how: str) -> None:
    spark = session(master, conf=QUICK)
    where = QueueAddress(url, "bullmq", "bull", "mail")
    reader = spark.read.format("corral").option("url", url).option("queue", "mail")
    read = reader.option("minPartitions", "2").load().count()
    rows = spark.range(30, numPartitions=2).selectExpr("id", "concat('reader-', id) as to")
    rows.write.format("corral").mode("append").options(url=url, queue="letters", name="send").save()
    counts = {"read": read}
    if how != "smoke":
        counts |= fill(spark, Lake(folder), where, how)
    print(json.dumps(counts))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
