"""`submit_rows MASTER URL ROWS CHECKPOINT`: a stream of files of rows into jobs, to its end."""

import sys

from corral.spark import session
from tests.spark.programs.whole_way import QUICK


def main(master: str, url: str, rows: str, checkpoint: str) -> None:
    spark = session(master, conf=QUICK)
    print("started", flush=True)
    query = (
        spark.readStream.schema("n long")
        .option("maxFilesPerTrigger", "1")
        .json(rows)
        .writeStream.format("corral")
        .options(url=url, queue="letters", name="send", batchRows="100")
        .option("jobOptions", '{"remove_on_complete": true}')
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
