"""JSON responses: documents of jobs and events, pages, RateLimit headers, security headers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi import Request
from msgspec import Struct, to_builtins
from msgspec.structs import asdict
from starlette.responses import Response

from corral.core.http_api import Admission, AdmissionLimits

Headers = Sequence[tuple[bytes, bytes]]

SECURITY_HEADERS: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


def with_security(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return a response's headers with those security headers that it does not set itself."""
    present = {name for name, _ in headers}
    return [*headers, *(header for header in SECURITY_HEADERS if header[0] not in present)]


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(encode(document), status, headers=headers, media_type="application/json")


def encode(document: Any) -> bytes:
    """Return a document as JSON on one line."""
    try:
        return orjson.dumps(document, default=_as_builtin)
    except TypeError:
        # half a surrogate pair, which other programs may write, can only be escaped
        return json.dumps(document, ensure_ascii=True, default=_as_builtin).encode()


def _as_builtin(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, orjson.Fragment):
        return orjson.loads(value.contents)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def item_document(item: Struct) -> dict[str, Any]:
    """Return a job, an event or a worker as a document; one that is nested too deep without those parts."""
    try:
        # bytes, as a job's own fields may have them, are written as text
        document: dict[str, Any] = to_builtins(item, builtin_types=(bytes,))
        encode(document)
    except RecursionError:
        flat = ((name, value) for name, value in asdict(item).items() if not isinstance(value, dict | list))
        document = to_builtins(dict(flat), builtin_types=(bytes,)) | {"_broken": {"data": "nested too deep"}}
    return document


def encode_item(item: Struct) -> bytes:
    """Return the same as JSON."""
    return encode(item_document(item))


def page_response(request: Request, jobs: Sequence[Any], cursor: str | None) -> Response:
    """Return a page of jobs, with a Link to the next (RFC 8288) where there is a cursor for it."""
    headers = {}
    if cursor is not None:
        # the path as it was sent: a name of any script is valid in a header only while it is escaped
        path = request.scope["raw_path"].decode("latin-1")
        query = urlencode({**request.query_params, "cursor": cursor})
        headers["Link"] = f'<{path}?{query}>; rel="next"'
    return json_response({"jobs": jobs, "next": cursor}, headers=headers)


def rate_limit_headers(admission: Admission, limits: AdmissionLimits) -> dict[str, str]:
    """Return the RateLimit headers: policies, what remains of each, and the older form of the last."""
    policies, remaining, older = [], [], (0, 0, 0)
    if limits.backlog is not None:
        left = max(limits.backlog - admission.backlog, 0)
        policies.append(f'"backlog";q={limits.backlog}')
        remaining.append(f'"backlog";r={left}')
        older = (limits.backlog, left, 0)
    if limits.rate is not None:
        left, seconds = max(admission.left, 0), -(-admission.wait_ms // 1000)
        policies.append(f'"client";q={limits.rate.count};w={limits.rate.duration // 1000}')
        remaining.append(f'"client";r={left};t={seconds}')
        older = (limits.rate.count, left, seconds)
    if not policies:
        return {}
    return {
        "RateLimit-Policy": ", ".join(policies),
        "RateLimit": ", ".join(remaining),
        "RateLimit-Limit": str(older[0]),
        "RateLimit-Remaining": str(older[1]),
        "RateLimit-Reset": str(older[2]),
    }
