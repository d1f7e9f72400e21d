"""RowConverter: the job of a row, with name, id, options and data from columns."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from uuid import UUID

import orjson

from corral.core import naming, options
from corral.core.job import Job, JobOptions
from corral.errors import InvalidOptions, InvalidPayload, short_repr
from corral.spark.options import QueueAddress, WriteOptions

_LONG_NUMBER = re.compile(rb"[0-9]{19}")


class RowConverter:
    """Makes jobs of rows. Made on the driver to check the options, and again by each task on an executor."""

    def __init__(self, address: QueueAddress, write_options: WriteOptions, columns: list[str]) -> None:
        self._spec = address.protocol.spec
        self._queue = address.queue
        self._write_options = write_options
        special = {
            "nameColumn": write_options.name_column,
            "idColumn": write_options.id_column,
            "dataColumn": write_options.data_column,
            "priorityColumn": write_options.priority_column,
            "delayColumn": write_options.delay_column,
        }
        for option, column in special.items():
            if column is not None and column not in columns:
                raise InvalidOptions(
                    f"{option} is {short_repr(column)}, which is no column; there are {', '.join(columns)}"
                )
        self._data_columns = [column for column in columns if column not in special.values()]
        self._has_all = len(self._data_columns) == len(columns)
        self._job_options = lru_cache(4096, typed=True)(self._build)
        # what is the same for all rows is checked once, before the first of them
        self._name = None if write_options.name is None else naming.check_job_name(write_options.name)
        shared = self._job_options(None, None)
        has_own = write_options.priority_column or write_options.delay_column
        self._shared_options = None if has_own else shared

    def job(self, row: Mapping[str, Any], now: int) -> Job:
        """Return the job of this row; raise `Refused` where it breaks a rule."""
        columns = self._write_options
        job_id = row[columns.id_column] if columns.id_column else derived_id(row)
        return Job(
            name=self._name or naming.check_job_name(_cell(row, columns.name_column)),
            data=self._data(row),
            queue=self._queue,
            id=naming.check_id(str(job_id) if isinstance(job_id, UUID) else job_id),
            options=self._shared_options
            or self._job_options(_cell(row, columns.priority_column), _cell(row, columns.delay_column)),
            created_at=now,
        )

    def _data(self, row: Mapping[str, Any]) -> Any:
        column = self._write_options.data_column
        if column is None:
            return row if self._has_all else {name: row[name] for name in self._data_columns}
        value = row[column]
        return parse_json(column, value) if isinstance(value, str) else {} if value is None else value

    def _build(self, priority: int | None, delay: int | None) -> JobOptions:
        values = dict(self._write_options.job_options or {})
        if priority is not None:
            values["priority"] = priority
        if delay is not None:
            values["delay"] = delay
        spec = self._spec
        return options.build(spec.name, spec.capabilities, spec.options, values, spec.priority)


def parse_json(column: str, text: str) -> Any:
    """Return the value of a column of JSON."""
    raw = text.encode("utf-8", "surrogatepass")
    try:
        # orjson would read a number of many digits as a float; as an integer it is refused by name later
        return json.loads(text) if _LONG_NUMBER.search(raw) else orjson.loads(raw)
    except ValueError:
        raise InvalidPayload(
            f"column {column!r} holds {short_repr(text)}, which is no JSON; leave dataColumn out, and the "
            f"other columns become an object"
        ) from None


def derived_id(row: Mapping[str, Any]) -> str:
    """Return an id made of all columns of a row: the same row has the same id on every machine.

    >>> derived_id({"a": 1, "b": "x"}) == derived_id({"b": "x", "a": 1})
    True
    """
    content = orjson.dumps(row, default=repr, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return str(UUID(bytes=blake2b(content, digest_size=16).digest()))


def _cell(row: Mapping[str, Any], column: str | None) -> Any:
    return None if column is None else row[column]
