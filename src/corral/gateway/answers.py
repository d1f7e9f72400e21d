"""Answers in JSON: documents, jobs and events in the words every protocol shares, and places in a list."""

import json
import re
from typing import Any

import msgspec
import orjson
from starlette.responses import Response

from corral.core.event import JobEvent
from corral.core.job import Job
from corral.gateway.problems import Problem

_OFFSET = re.compile(r"after-([0-9]{1,9})")


def json_answer(document: Any, status: int = 200, more: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(encode(document), status, headers=more, media_type="application/json")


def encode(document: Any) -> bytes:
    """A document as JSON on one line."""
    try:
        return orjson.dumps(document)
    except TypeError:
        # half a surrogate pair in a stranger's text can only be escaped
        return json.dumps(document, ensure_ascii=True, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, orjson.Fragment):
        return orjson.loads(value.contents)
    raise TypeError(f"{type(value).__name__} is no JSON")


def job_document(job: Job) -> dict[str, Any]:
    """A job with all that the model knows of it."""
    document: dict[str, Any] = msgspec.to_builtins(job)
    return document


def event_document(event: JobEvent) -> dict[str, Any]:
    """An event in the words every protocol shares."""
    document: dict[str, Any] = msgspec.to_builtins(event)
    return document


def read_offset(cursor: str) -> int:
    """How many jobs of a list come before this cursor."""
    if not cursor:
        return 0
    found = _OFFSET.fullmatch(cursor)
    if found is None:
        raise Problem("invalid-cursor", f"cursor {cursor[:40]!a} is none of ours; use a page's `next`")
    return int(found[1])


def write_offset(offset: int) -> str:
    """The cursor that `read_offset` reads."""
    return f"after-{offset}"
