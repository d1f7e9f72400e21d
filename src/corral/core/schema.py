"""The JSON Schemas of jobs and events, as shipped with the package."""

from functools import cache
from importlib.resources import files
from typing import Any

import orjson


def payload_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a job: id, name, data, opts, and its state.

    >>> payload_schema()["required"]
    ['id', 'name', 'data', 'opts']
    """
    return _load("job-payload-schema.json")


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a `JobEvent` as JSON.

    >>> event_schema()["required"]
    ['id', 'protocol', 'queue', 'at', 'kind']
    """
    return _load("event-schema.json")


def _load(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = orjson.loads(_read(name))
    return schema


@cache
def _read(name: str) -> bytes:
    return files("corral.core").joinpath("schemas", name).read_bytes()
