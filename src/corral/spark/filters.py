"""Conditions of a query that a reader answers itself, so that Spark gets fewer rows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource

from corral.core.filter import JobFilter
from corral.core.job import JobState


class FilterPushdown:
    """`pushFilters` of a reader, as an attribute of it. Runs on the driver.

    Spark refuses a reader with this method where filters are not pushed down, which is its default:
    `__func__` makes it take the attribute for the inherited method there.
    """

    __func__ = staticmethod(datasource.DataSourceReader.pushFilters)

    def __init__(self, narrow: Callable[[datasource.Filter], bool]) -> None:
        self._narrow = narrow

    def __call__(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Narrow the reader; return the filters that Spark must apply itself."""
        return [one for one in filters if not self._narrow(one)]


# -- events -------------------------------------------------------------------------------------------------

EVENT_COLUMNS = ("protocol", "queue", "event", "job_id", "name")
"""Columns of `events` whose values may be chosen."""
NEVER_NULL = ("protocol", "queue", "event_id", "ts", "event")


@dataclass(frozen=True)
class EventFilter:
    """Values that columns of `events` may have; a column that is not named may have any."""

    values: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def narrowed(self, condition: datasource.Filter) -> "EventFilter | None":
        """Return the filter under one more condition; None where Spark must apply it."""
        match condition:
            case datasource.EqualTo((column,), str(value)) if column in EVENT_COLUMNS:
                values = frozenset([value])
            case datasource.In((column,), chosen) if column in EVENT_COLUMNS:
                values = frozenset(value for value in chosen if isinstance(value, str))
            case datasource.IsNotNull((column,)) if column in NEVER_NULL:
                return self
            case _:
                return None
        return EventFilter({**self.values, column: values & self.values.get(column, values)})

    def has(self, column: str, value: str) -> bool:
        """Return whether the column may have this value."""
        return column not in self.values or value in self.values[column]

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the filter has."""
        for column, values in self.values.items():
            chosen = pc.is_in(rows.column(column), value_set=pa.array(sorted(values), pa.string()))
            rows = rows.filter(chosen)
        return rows


# -- jobs ---------------------------------------------------------------------------------------------------


def narrow_jobs(jobs: JobFilter, condition: datasource.Filter) -> tuple[JobFilter, bool]:
    """Return the filter under one more condition, and whether Spark need not apply the condition again."""
    match condition:
        case datasource.EqualTo(("state",), str(value)):
            return _with_states(jobs, [value]), True
        case datasource.In(("state",), values):
            return _with_states(jobs, values), True
        case datasource.EqualTo(("name",), str(value)):
            return _with_names(jobs, [value]), True
        case datasource.In(("name",), values):
            return _with_names(jobs, values), True
        case datasource.GreaterThan(("created_at",), datetime() as at) | datasource.GreaterThanOrEqual(
            ("created_at",), datetime() as at
        ):
            since = _milliseconds(at)
            return msgspec.structs.replace(jobs, since=max(since, jobs.since or since)), False
        case datasource.LessThan(("created_at",), datetime() as at) | datasource.LessThanOrEqual(
            ("created_at",), datetime() as at
        ):
            until = _milliseconds(at)
            return msgspec.structs.replace(jobs, until=min(until, jobs.until or until)), False
    return jobs, False


def _with_states(jobs: JobFilter, values: Iterable[Any]) -> JobFilter:
    states = frozenset(state for state in JobState if str(state) in values)
    return msgspec.structs.replace(jobs, states=states if jobs.states is None else jobs.states & states)


def _with_names(jobs: JobFilter, values: Iterable[Any]) -> JobFilter:
    names = frozenset(value for value in values if isinstance(value, str))
    return msgspec.structs.replace(jobs, names=names if jobs.names is None else jobs.names & names)


def _milliseconds(at: datetime) -> int:
    # a time without a zone comes from Spark, in UTC
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000 // 1)
