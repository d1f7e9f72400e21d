"""Spark: jobs and events as DataFrames, DataFrames as jobs, handlers on executors, a lake of job history."""

import importlib
import typing

from corral.spark.java import NoJava, find_java
from corral.spark.session import register, session

if typing.TYPE_CHECKING:
    from corral.spark.mapping import map_in_corral
    from corral.spark.working import NoExecutor, SparkError, WorkProgress, WorkSummary, work

__all__ = [
    "NoExecutor",
    "NoJava",
    "SparkError",
    "WorkProgress",
    "WorkSummary",
    "find_java",
    "map_in_corral",
    "register",
    "session",
    "work",
]

_MODULES = {
    "map_in_corral": "corral.spark.mapping",
    "NoExecutor": "corral.spark.working",
    "SparkError": "corral.spark.working",
    "WorkProgress": "corral.spark.working",
    "WorkSummary": "corral.spark.working",
    "work": "corral.spark.working",
}
"""The names whose modules need pyspark: imported when they are first used."""


if not typing.TYPE_CHECKING:  # to a type checker it would mean that every name exists

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = vars(importlib.import_module(_MODULES[name]))[name]
        return value
