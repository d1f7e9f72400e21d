"""A Spark job whose rows become jobs, each once, also when it runs again.

pip install 'corral[spark]'
python spark_submit.py                     # or: spark-submit --master … spark_submit.py
corral queue show letters

The write has a name: run again, it adds nothing, also when its jobs have ended meanwhile.
"""

import os

from corral.spark import register, session

WRITE = "welcome-2026-11"


def submit(spark) -> int:
    """Submit the chosen rows; return how many there are."""
    readers = spark.range(1000).selectExpr(
        "concat('reader-', id) as key", "concat('reader-', id, '@example.com') as email", "id % 3 as list"
    )
    chosen = readers.where("list = 0").select("key", "email")
    (
        chosen.write.format("corral")
        .mode("append")
        .option("url", os.environ["REDIS_URL"])
        .option("queue", "letters")
        .option("name", "welcome")
        .option("idColumn", "key")
        .option("writeId", WRITE)
        .save()
    )
    return chosen.count()


if __name__ == "__main__":
    spark = session(name="letters")
    register(spark)
    print(f"{submit(spark)} rows are jobs now")
    spark.stop()
