"""A request's body: counted as it comes, and read as JSON of one model."""

from typing import Any, TypeVar

from fastapi import Request
from msgspec import DecodeError, Raw, Struct
from msgspec.json import decode
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from corral.gateway.problems import Problem, of_faults
from corral.gateway.settings import Settings

Model = TypeVar("Model", bound=BaseModel)


async def read_json(request: Request, model: type[Model], settings: Settings) -> tuple[Model, bytes]:
    """The body as a model, and its bytes."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(
            "unsupported-media-type",
            f"the body is {media_type[:80] or 'of no type'!r}; send Content-Type: application/json",
            headers={"Accept": "application/json"},
        )
    body = await read_body(request, settings)
    return parse(body, model, settings.max_json_depth), body


async def read_body(request: Request, settings: Settings) -> bytes:
    """The body, if it is small enough; that it comes in time is the protocol's care."""
    most = settings.max_body_bytes
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_large(int(length), most)
    message = await _next(request)
    body: bytes = message.get("body", b"")
    if len(body) <= most and not message.get("more_body", False):
        return body
    parts, size = [body], len(body)
    while size <= most and message.get("more_body", False):
        message = await _next(request)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    if size > most:
        raise _too_large(size, most)
    return b"".join(parts)


async def _next(request: Request) -> Any:
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


def _too_large(size: int, most: int) -> Problem:
    # the rest of the body stays unread, so the connection cannot be used again
    return Problem(
        "body-too-large", f"the body has {size} bytes or more; send at most {most}", {"Connection": "close"}
    )


def parse(body: bytes, model: type[Model], most_depth: int) -> Model:
    """The model, or the problem with each fault by its place."""
    try:
        parsed = model.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        if faults[0]["type"] == "json_invalid":
            raise Problem("malformed-json", str(faults[0]["msg"])) from None
        raise of_faults({**fault, "loc": ("body", *fault["loc"])} for fault in faults) from None
    # each level takes a bracket, so few brackets are no depth and need no walk
    if body.count(b"{") + body.count(b"[") > most_depth and depth(parsed.model_dump()) > most_depth:
        raise Problem("invalid-request", f"the body is nested more than {most_depth} levels deep; flatten it")
    return parsed


def depth(value: Any) -> int:
    """How many levels of objects and lists there are."""
    deepest, level = 0, [value]
    while level:
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner.extend(part.values())
            elif isinstance(part, list):
                inner.extend(part)
        containers = [part for part in level if isinstance(part, dict | list)]
        deepest += bool(containers)
        level = inner
    return deepest


class _Sliced(Struct):
    payload: Raw


def payload_size(body: bytes) -> int:
    """Bytes of the payload as it was sent: white space and escapes count, for they came over the wire."""
    try:
        return len(bytes(decode(body, type=_Sliced).payload))
    except DecodeError as error:
        raise Problem("malformed-json", str(error)) from None
