"""Parsing of requests: JSON bodies, idempotency keys, preferences, resume positions, cursors."""

import re
from typing import Any, TypeVar

from fastapi import Request
from msgspec import DecodeError, Raw, Struct
from msgspec.json import decode
from pydantic import BaseModel, ValidationError

from corral.gateway.problems import Problem, of_validation
from corral.gateway.settings import GatewaySettings

Model = TypeVar("Model", bound=BaseModel)

SCOPE_BODY = "corral.body"
"""The key of an ASGI scope under which a body that was read is kept, for the audit log."""
BEGINNING = "0-0"
NOW = "$"

_IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,255}")
_WAIT = re.compile(r"wait\s*=\s*\"?([0-9]{1,6})\"?", re.IGNORECASE)
_EVENT_ID = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


# -- bodies -------------------------------------------------------------------------------------------------


async def read_json(request: Request, model: type[Model], settings: GatewaySettings) -> tuple[Model, bytes]:
    """Return the body as a model, and its bytes."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(
            "unsupported-media-type",
            f"the body is {media_type[:80] or 'of no type'!r}; send Content-Type: application/json",
            headers={"Accept": "application/json"},
        )
    body = await _read_body(request, settings.max_body_bytes)
    request.scope[SCOPE_BODY] = body
    return _parse(body, model, settings.max_json_depth), body


async def _read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body; its size is limited here, its time by the connection."""
    length = request.headers.get("content-length", "")
    size = int(length) if length.isdecimal() else 0
    parts: list[bytes] = []
    if size <= max_bytes:
        size = 0
        # not `receive`: an integration such as Sentry's may have read the body before
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > max_bytes:
                break
    if size > max_bytes:
        raise Problem("body-too-large", f"the body has {size} bytes or more; send at most {max_bytes}")
    return b"".join(parts)


def _parse(body: bytes, model: type[Model], max_depth: int) -> Model:
    try:
        parsed = model.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        if faults[0]["type"] == "json_invalid":
            raise Problem("malformed-json", str(faults[0]["msg"])) from None
        raise of_validation({**fault, "loc": ("body", *fault["loc"])} for fault in faults) from None
    # each level takes a bracket: a body of few brackets need not be walked
    if body.count(b"{") + body.count(b"[") > max_depth and _depth(parsed.model_dump()) > max_depth:
        raise Problem("invalid-request", f"the body is nested more than {max_depth} levels deep; flatten it")
    return parsed


def _depth(value: Any) -> int:
    """Return how many levels of objects and lists a value has."""
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
    return depth


class _PayloadSlice(Struct):
    payload: Raw


def payload_size(body: bytes) -> int:
    """Return the bytes of the payload as it was sent, with white space and escapes."""
    try:
        return len(bytes(decode(body, type=_PayloadSlice).payload))
    except DecodeError as error:
        raise Problem("malformed-json", str(error)) from None


# -- headers and parameters ---------------------------------------------------------------------------------


def idempotency_key(request: Request) -> str | None:
    """Return the request's Idempotency-Key."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1 or not _IDEMPOTENCY_KEY.fullmatch(values[0]):
        raise Problem(
            "invalid-idempotency-key",
            f"Idempotency-Key {', '.join(values)[:80]!a} is not valid; "
            f"send one of 1 to 255 visible ASCII characters without spaces",
        )
    return values[0]


def preferred_wait_s(request: Request) -> int | None:
    """Return the seconds of `Prefer: wait` (RFC 7240); preferences that cannot be read are ignored."""
    values = request.headers.getlist("prefer")
    for part in ",".join(values).split(",") if values else ():
        match = _WAIT.fullmatch(part.partition(";")[0].strip())
        if match:
            return int(match[1])
    return None


def parse_event_id(event_id: str | None) -> str | None:
    """Return the id after which a tail resumes, in its full form.

    >>> parse_event_id("17-3"), parse_event_id("18")
    ('17-3', '18-0')
    """
    if event_id is None or event_id == NOW:
        return event_id
    match = _EVENT_ID.fullmatch(event_id)
    parts = (int(match[1]), int(match[2] or 0)) if match else (2**64, 0)
    if max(parts) >= 2**64:
        raise Problem(
            "invalid-last-event-id",
            f"{event_id[:60]!a} is not an event id; send one that a tail sent, such as 1767225600000-0, "
            f"or none for the beginning",
        )
    return f"{parts[0]}-{parts[1]}"


def id_order(event_id: str) -> tuple[int, int]:
    """Return an event id as numbers, which can be compared."""
    milliseconds, _, sequence = event_id.partition("-")
    return int(milliseconds), int(sequence)
