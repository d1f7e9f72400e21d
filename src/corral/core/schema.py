"""The JSON Schemas that come with the package: a job as it is exchanged, and its events."""

from functools import cache
from importlib.resources import files
from typing import Any

import orjson


def payload_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a job: id, name, data, opts, and what has become of it.

    >>> payload_schema()["required"]
    ['id', 'name', 'data', 'opts']
    """
    return _load("job-payload-schema.json")


def event_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of an event in a job's life.

    >>> event_schema()["required"]
    ['event', 'timestamp']
    """
    return _load("event-schema.json")


def _load(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = orjson.loads(_read(name))
    return schema


@cache
def _read(name: str) -> bytes:
    return files("corral.core").joinpath("schemas", name).read_bytes()
