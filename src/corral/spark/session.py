"""A SparkSession that knows Corral: its Java, its Python, its format."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from corral.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMBEDDED_MASTER = "local[*]"

USUAL = {
    "spark.sql.session.timeZone": "UTC",
    # filters on state, name and time then reach the server; Spark keeps this off by default
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What Corral asks of a session; anything given wins over it."""


def prepare() -> None:
    """Tell Spark which Java and which Python to run; what the environment says already stays."""
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def session(
    master: str | None = None, *, name: str = "corral", conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """A session with Corral's format registered: the running one, else a new one.

    `master` is any of Spark's own (`local[2]`, `spark://host:7077`, `yarn`, `k8s://…`) or, for Spark
    Connect, `sc://host:15002`; without one SPARK_REMOTE, then MASTER in the environment, else this machine.

    >>> spark = session("local[2]", conf={"spark.driver.memory": "1g"})          # doctest: +SKIP
    >>> spark.read.format("corral").option("queue", "mail").load()               # doctest: +SKIP
    """
    from pyspark.sql import SparkSession

    from corral.spark import register

    master = master or os.environ.get("SPARK_REMOTE") or os.environ.get("MASTER") or EMBEDDED_MASTER
    wanted = {**USUAL, **(conf or {})}
    builder = SparkSession.builder.appName(name)
    if master.startswith("sc://"):
        made = builder.remote(master).getOrCreate()
        for key in ("spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled"):
            made.conf.set(key, wanted[key])
    else:
        prepare()
        if master.startswith("local"):
            # one machine needs no name of its own, and must not be reached from another
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            wanted.setdefault("spark.driver.bindAddress", "127.0.0.1")
            wanted.setdefault("spark.driver.host", "127.0.0.1")
        builder = builder.master(master)
        for key, value in wanted.items():
            builder = builder.config(key, value)
        made = builder.getOrCreate()
    register(made)
    return made
