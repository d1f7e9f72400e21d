"""Errors as RFC 9457 problem documents, each kind under a stable name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from corral import errors
from corral.telemetry.logs import logger

MEDIA_TYPE = "application/problem+json"
BASE = "urn:corral:problem:"


class ProblemKind(NamedTuple):
    """One kind of problem."""

    name: str
    status: int
    title: str


KINDS: tuple[ProblemKind, ...] = (
    ProblemKind("malformed-request", 400, "The request is not valid HTTP"),
    ProblemKind("malformed-json", 400, "The body is not valid JSON"),
    ProblemKind("invalid-idempotency-key", 400, "The Idempotency-Key is not valid"),
    ProblemKind("invalid-cursor", 400, "The cursor is not valid"),
    ProblemKind("invalid-last-event-id", 400, "The last event id is not valid"),
    ProblemKind("unauthorized", 401, "A key is required"),
    ProblemKind("forbidden", 403, "The key does not allow this"),
    ProblemKind("cross-origin", 403, "Requests from pages of other origins are not allowed"),
    ProblemKind("csrf", 403, "The CSRF token is missing or wrong"),
    ProblemKind("read-only", 403, "The gateway is read-only"),
    ProblemKind("not-found", 404, "There is no such path"),
    ProblemKind("job-not-found", 404, "There is no such job"),
    ProblemKind("queue-not-found", 404, "There is no such queue"),
    ProblemKind("protocol-not-found", 404, "There is no such protocol"),
    ProblemKind("schedule-not-found", 404, "There is no such schedule"),
    ProblemKind("task-not-found", 404, "There is no such task"),
    ProblemKind("no-lake", 404, "There is no lake"),
    ProblemKind("method-not-allowed", 405, "The method is not allowed here"),
    ProblemKind("request-timeout", 408, "The request did not arrive in time"),
    ProblemKind("job-ended", 409, "The job has ended"),
    ProblemKind("invalid-state", 409, "The job's state does not allow this"),
    ProblemKind("unsupported", 409, "The protocol does not support this"),
    ProblemKind("idempotency-in-flight", 409, "The first request with this Idempotency-Key has not ended"),
    ProblemKind("body-too-large", 413, "The body is too large"),
    ProblemKind("payload-too-large", 413, "The payload is too large"),
    ProblemKind("unsupported-media-type", 415, "The body must be JSON"),
    ProblemKind("misdirected", 421, "The gateway does not accept this host name"),
    ProblemKind("invalid-request", 422, "The request is not valid"),
    ProblemKind("idempotency-key-reused", 422, "The Idempotency-Key belongs to another request"),
    ProblemKind("backlog-full", 429, "The queue is full"),
    ProblemKind("rate-limited", 429, "The client's quota is used up"),
    ProblemKind("too-many-tails", 429, "Too many tails are open"),
    ProblemKind("headers-too-large", 431, "The headers are too large"),
    ProblemKind("internal", 500, "Internal error"),
    ProblemKind("redis-error", 502, "Redis refused a command"),
    ProblemKind("redis-unavailable", 503, "Redis is unavailable"),
    ProblemKind("lake-unreadable", 503, "The lake cannot be read"),
    ProblemKind("too-many-connections", 503, "Too many connections are open"),
    ProblemKind("stopping", 503, "The gateway is stopping"),
)
"""Part of the interface: names are added, never changed."""

_BY_NAME = {kind.name: kind for kind in KINDS}

_BY_ERROR: tuple[tuple[type[errors.CorralError], str], ...] = (
    (errors.IdempotencyPending, "idempotency-in-flight"),
    (errors.IdempotencyConflict, "idempotency-key-reused"),
    (errors.PayloadTooLarge, "payload-too-large"),
    (errors.Unsupported, "unsupported"),
    (errors.UnknownProtocol, "protocol-not-found"),
    (errors.InvalidName, "invalid-request"),
    (errors.InvalidOptions, "invalid-request"),
    (errors.InvalidPayload, "invalid-request"),
    (errors.Refused, "invalid-request"),
    (errors.SettleError, "invalid-state"),
)
"""The first that matches."""

_RETRY_AFTER_S = dict.fromkeys(
    ("idempotency-in-flight", "redis-unavailable", "lake-unreadable", "too-many-connections", "stopping"), 1
)


class Problem(Exception):
    """An error whose response is a problem document."""

    def __init__(
        self, name: str, detail: str, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        self.kind = _BY_NAME[name]
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members
        super().__init__(f"{name}: {detail}")

    def response(self) -> Response:
        """Return the response."""
        name, status, title = self.kind
        if name in _RETRY_AFTER_S:
            self.headers.setdefault("Retry-After", str(_RETRY_AFTER_S[name]))
        document = {"type": BASE + name, "title": title, "status": status, "detail": self.detail}
        body = orjson.dumps({**document, **self.members})
        return Response(body, status, headers=self.headers, media_type=MEDIA_TYPE)


def of_error(error: errors.CorralError) -> Problem:
    """Return the problem of one of Corral's errors."""
    if isinstance(error, errors.RedisError):
        # Redis's own messages contain addresses and keys: they are logged, not sent
        logger("gateway").warning("Redis failed", error=str(error))
        name = type(error).__name__
        if isinstance(error, errors.RedisResponseError):
            return Problem("redis-error", f"Redis refused a command ({name}); see the gateway's log")
        return Problem(
            "redis-unavailable",
            f"Redis is unavailable ({name}); repeat the request, "
            f"for a new job under the same Idempotency-Key, since it may have been created",
        )
    for kind, name in _BY_ERROR:
        if isinstance(error, kind):
            return Problem(name, str(error))
    return Problem("internal", "an unexpected error; see the gateway's log")


def of_validation(faults: Iterable[Mapping[str, Any]]) -> Problem:
    """Return the problem of a request that breaks its schema, with all faults by their positions."""
    fields = [
        {"in": str(fault["loc"][0]), "pointer": _pointer(fault["loc"][1:]), "detail": str(fault["msg"])}
        for fault in faults
    ]
    position = f"{fields[0]['in']} {fields[0]['pointer']}".strip()
    return Problem("invalid-request", f"{position}: {fields[0]['detail']}", errors=fields)


def _pointer(path: Sequence[str | int]) -> str:
    """Return a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def install(app: FastAPI) -> None:
    """Respond to every error of the app with a problem."""
    kinds = (Problem, errors.CorralError, RequestValidationError, HTTPException, ClientDisconnect, Exception)
    for kind in kinds:
        app.add_exception_handler(kind, _respond)


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of all routes of a path; an error has those of the first alone."""
    allowed = {"OPTIONS"}
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            allowed |= {"GET", "HEAD"} if method == "GET" else {method}
    return sorted(allowed)


async def _respond(request: Request, error: Exception) -> Response:
    match error:
        case Problem():
            return error.response()
        case errors.CorralError():
            return of_error(error).response()
        case RequestValidationError():
            return of_validation(error.errors()).response()
        case HTTPException(status_code=405):
            allowed = ", ".join(_allowed_methods(request))
            if request.method == "OPTIONS":
                return Response(status_code=204, headers={"Allow": allowed})
            detail = f"{request.method} is not allowed here; use {allowed}"
            return Problem("method-not-allowed", detail, headers={"Allow": allowed}).response()
        case HTTPException(status_code=404):
            return Problem("not-found", "there is no such path; see /openapi.json").response()
        case HTTPException():
            return Problem("malformed-request", str(error.detail)).response()
        case ClientDisconnect():
            return Response(status_code=400)  # nobody reads it
    logger("gateway").error("request failed", path=request.url.path, error=type(error).__name__)
    return Problem("internal", "an unexpected error; see the gateway's log").response()
