"""A Spark program that adds one job per row, exactly once, also when it runs again.

pip install 'corral[spark]'
python spark_submit.py                     # or: spark-submit --master … spark_submit.py
corral queue show letters

The write has an id: repeating it adds nothing, even if its jobs have ended.
"""

import os

from corral.spark import register, session

WRITE = "welcome-2026-11"


def submit(spark) -> int:
    """Add a job for each selected row; return the number of rows."""
    readers = spark.range(1000).selectExpr(
        "concat('reader-', id) as key", "concat('reader-', id, '@example.com') as email", "id % 3 as list"
    )
    selected = readers.where("list = 0").select("key", "email")
    (
        selected.write.format("corral")
        .mode("append")
        .option("url", os.environ["REDIS_URL"])
        .option("queue", "letters")
        .option("name", "welcome")
        .option("idColumn", "key")
        .option("writeId", WRITE)
        .save()
    )
    return selected.count()


if __name__ == "__main__":
    spark = session(name="letters")
    register(spark)
    print(f"{submit(spark)} rows were added as jobs")
    spark.stop()
