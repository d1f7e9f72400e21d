"""SparkSessions that know Corral: its Java, its Python, its format."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from corral.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMBEDDED_MASTER = "local[*]"

DEFAULT_CONF = {
    "spark.sql.session.timeZone": "UTC",
    # lets filters on state, name and time reach the server; off by default in Spark
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Configuration of a session, unless `conf` says otherwise."""


def register(spark: "SparkSession") -> None:
    """Register `format("corral")` in a session that has not found it by itself.

    >>> register(spark)                                                             # doctest: +SKIP
    """
    from corral.spark.source import CorralSource

    spark.dataSource.register(CorralSource)


def session(
    master: str | None = None, *, name: str = "corral", conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """Return a session with Corral's format registered: the running one, else a new one.

    `master` is any of Spark's own (`local[2]`, `spark://host:7077`, `yarn`, `k8s://…`) or, for Spark
    Connect, `sc://host:15002`; without one SPARK_REMOTE, then MASTER in the environment, else this machine.

    >>> spark = session("local[2]", conf={"spark.driver.memory": "1g"})          # doctest: +SKIP
    >>> spark.read.format("corral").option("queue", "mail").load()               # doctest: +SKIP
    """
    from pyspark.sql import SparkSession

    master = master or os.environ.get("SPARK_REMOTE") or os.environ.get("MASTER") or EMBEDDED_MASTER
    settings = {**DEFAULT_CONF, **(conf or {})}
    builder = SparkSession.builder.appName(name)
    if master.startswith("sc://"):
        spark = builder.remote(master).getOrCreate()
        for key in ("spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled"):
            spark.conf.set(key, settings[key])
    else:
        os.environ["JAVA_HOME"] = str(find_java())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if master.startswith("local"):
            # one machine needs no host name, and must not be reachable from another
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
            settings.setdefault("spark.driver.host", "127.0.0.1")
        spark = builder.master(master).config(map=dict(settings)).getOrCreate()
    register(spark)
    return spark
