"""Rows become jobs: names, ids, options and data from columns, and a reason for each row that cannot."""

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
from corral.spark.options import Where, Writing

_LONG_NUMBER = re.compile(rb"[0-9]{19}")


class RowReader:
    """Makes a job of a row.

    >>> RowReader(where, writing, ["id", "to"]).job({"id": "order-17", "to": "a@b.c"}, now)   # doctest: +SKIP
    """

    def __init__(self, where: Where, writing: Writing, columns: list[str]) -> None:
        self._protocol = where.protocol
        self._queue = where.queue
        self._writing = writing
        asked = {
            "nameColumn": writing.name_column,
            "idColumn": writing.id_column,
            "dataColumn": writing.data_column,
            "priorityColumn": writing.priority_column,
            "delayColumn": writing.delay_column,
        }
        for option, column in asked.items():
            if column is not None and column not in columns:
                raise InvalidOptions(
                    f"{option} is {short_repr(column)}, which is no column; there are {', '.join(columns)}"
                )
        used = {column for column in asked.values() if column is not None}
        self._data_columns = [column for column in columns if column not in used]
        self._has_all = len(self._data_columns) == len(columns)
        self._options = lru_cache(4096, typed=True)(self._build)
        # what is the same for all rows is checked once, before the first of them
        self._name = None if writing.name is None else naming.check_job_name(writing.name)
        usual = self._options(None, None)
        self._usual = usual if writing.priority_column is writing.delay_column is None else None

    def job(self, row: Mapping[str, Any], now: int) -> Job:
        """The job of this row; refused where it breaks a rule."""
        writing = self._writing
        given = row[writing.id_column] if writing.id_column else derived_id(row)
        return Job(
            name=self._name or naming.check_job_name(_cell(row, writing.name_column)),
            data=self._data(row),
            queue=self._queue,
            id=naming.check_id(str(given) if isinstance(given, UUID) else given),
            options=self._usual or self._options_of(row),
            created_at=now,
        )

    def _options_of(self, row: Mapping[str, Any]) -> JobOptions:
        writing = self._writing
        return self._options(_cell(row, writing.priority_column), _cell(row, writing.delay_column))

    def _data(self, row: Mapping[str, Any]) -> Any:
        column = self._writing.data_column
        if column is None:
            return row if self._has_all else {name: row[name] for name in self._data_columns}
        value = row[column]
        return parsed(column, value) if isinstance(value, str) else {} if value is None else value

    def _build(self, priority: int | None, delay: int | None) -> JobOptions:
        given = dict(self._writing.job_options)
        if priority is not None:
            given["priority"] = priority
        if delay is not None:
            given["delay"] = delay
        return options.build(self._protocol.name, self._protocol.capabilities, self._protocol.extras, given)


def parsed(column: str, text: str) -> Any:
    """The JSON in a column; refused where it is none."""
    raw = text.encode("utf-8", "surrogatepass")
    try:
        # a number of many digits would come back as a float: as a whole one it is refused by name later
        return json.loads(text) if _LONG_NUMBER.search(raw) else orjson.loads(raw)
    except ValueError:
        raise InvalidPayload(
            f"column {column!r} holds {short_repr(text)}, which is no JSON; leave dataColumn out, and the "
            f"other columns become an object"
        ) from None


def derived_id(row: Mapping[str, Any]) -> str:
    """An id made of all that a row says: the same row, the same id, on whatever machine.

    >>> derived_id({"a": 1, "b": "x"}) == derived_id({"b": "x", "a": 1})
    True
    """
    said = orjson.dumps(row, default=repr, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return str(UUID(bytes=blake2b(said, digest_size=16).digest()))


def _cell(row: Mapping[str, Any], column: str | None) -> Any:
    return None if column is None else row[column]
