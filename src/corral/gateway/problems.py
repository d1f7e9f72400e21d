"""Every error as RFC 9457 problem+json, each kind under a name that does not change."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from corral.errors import (
    CorralError,
    IdempotencyConflict,
    IdempotencyPending,
    InvalidName,
    InvalidOptions,
    InvalidPayload,
    PayloadTooLarge,
    RedisError,
    RedisResponseError,
    Refused,
    SettleError,
    UnknownProtocol,
    Unsupported,
)
from corral.telemetry.logs import logger

MEDIA_TYPE = "application/problem+json"
BASE = "urn:corral:problem:"
AWAY_RETRY_S = 1


class Kind(NamedTuple):
    """One kind of problem: what it is called, the status it comes with, and its title."""

    name: str
    status: int
    title: str


KINDS: tuple[Kind, ...] = (
    Kind("malformed-request", 400, "The request is not HTTP that can be read"),
    Kind("malformed-json", 400, "The body is not JSON"),
    Kind("invalid-idempotency-key", 400, "The Idempotency-Key does not fit"),
    Kind("invalid-cursor", 400, "The cursor is none of ours"),
    Kind("invalid-last-event-id", 400, "The last event id is no id of an event"),
    Kind("unauthorized", 401, "A key is needed"),
    Kind("forbidden", 403, "The key does not allow this"),
    Kind("cross-origin", 403, "Pages of other origins may not do this"),
    Kind("not-found", 404, "There is nothing here"),
    Kind("job-not-found", 404, "There is no such job"),
    Kind("queue-not-found", 404, "There is no such queue"),
    Kind("protocol-not-found", 404, "There is no such protocol"),
    Kind("schedule-not-found", 404, "There is no such schedule"),
    Kind("method-not-allowed", 405, "This cannot be done here"),
    Kind("request-timeout", 408, "The body did not come in time"),
    Kind("job-over", 409, "The job is over"),
    Kind("not-possible-now", 409, "The job's state does not allow this"),
    Kind("unsupported", 409, "The protocol cannot do this"),
    Kind("idempotency-in-flight", 409, "The Idempotency-Key's first request has not ended"),
    Kind("body-too-large", 413, "The body is too large"),
    Kind("payload-too-large", 413, "The payload is too large"),
    Kind("unsupported-media-type", 415, "The body must be JSON"),
    Kind("misdirected", 421, "The gateway does not answer to this host name"),
    Kind("invalid-request", 422, "The request does not fit"),
    Kind("idempotency-key-reused", 422, "The Idempotency-Key stands for another request"),
    Kind("backlog-full", 429, "The queue is full"),
    Kind("client-limit", 429, "The client has had its share for now"),
    Kind("too-many-tails", 429, "Too many tails are open"),
    Kind("headers-too-large", 431, "The headers are too large"),
    Kind("internal", 500, "Something went wrong here"),
    Kind("server-refused", 502, "The server refused the command"),
    Kind("server-away", 503, "The server cannot serve just now"),
    Kind("stopping", 503, "The gateway is stopping"),
)
"""Part of the interface: names are added, never changed."""

_BY_NAME = {kind.name: kind for kind in KINDS}

_OF_ERRORS: tuple[tuple[type[CorralError], str], ...] = (
    (IdempotencyPending, "idempotency-in-flight"),
    (IdempotencyConflict, "idempotency-key-reused"),
    (PayloadTooLarge, "payload-too-large"),
    (Unsupported, "unsupported"),
    (UnknownProtocol, "protocol-not-found"),
    (InvalidName, "invalid-request"),
    (InvalidOptions, "invalid-request"),
    (InvalidPayload, "invalid-request"),
    (Refused, "invalid-request"),
    (SettleError, "not-possible-now"),
)
"""The first that fits; the house's own errors, in the words of HTTP."""

_ASK_AGAIN = "ask again, and for a job under the same Idempotency-Key: it may have been created"
_RETRIED = {"idempotency-in-flight": 1, "server-away": AWAY_RETRY_S, "stopping": 1}


class Problem(Exception):
    """Raised anywhere in a request: the answer is this problem."""

    def __init__(
        self, name: str, detail: str, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        self.kind = _BY_NAME[name]
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members
        super().__init__(f"{name}: {detail}")

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "type": BASE + self.kind.name,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            **self.members,
        }

    def response(self) -> Response:
        """The answer."""
        if self.kind.name in _RETRIED:
            self.headers.setdefault("Retry-After", str(_RETRIED[self.kind.name]))
        body = orjson.dumps(self.document)
        return Response(body, self.kind.status, headers=self.headers, media_type=MEDIA_TYPE)


def of_error(error: CorralError) -> Problem:
    """The problem that one of the house's own errors is."""
    if isinstance(error, RedisError):
        # the server's own words name its address and its keys: they are for the log
        logger("gateway").warning("the server did not serve", error=str(error))
        word = type(error).__name__
        if isinstance(error, RedisResponseError):
            return Problem("server-refused", f"the job server refused a command ({word}); the log has more")
        return Problem("server-away", f"the job server does not serve just now ({word}); {_ASK_AGAIN}")
    for kind, name in _OF_ERRORS:
        if isinstance(error, kind):
            return Problem(name, str(error))
    return Problem("internal", "an error that has no words of its own; the log has more")


def of_faults(faults: Iterable[Mapping[str, Any]]) -> Problem:
    """The problem of a request that breaks the rules of its schema; each fault by its place."""
    errors = [
        {"in": str(fault["loc"][0]), "pointer": _pointer(fault["loc"][1:]), "detail": str(fault["msg"])}
        for fault in faults
    ]
    first = errors[0]
    where = f"{first['in']} {first['pointer']}".strip()
    return Problem("invalid-request", f"{where}: {first['detail']}", errors=errors)


def _pointer(path: Sequence[str | int]) -> str:
    """A JSON Pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def install(app: FastAPI) -> None:
    """Let every error of the app be answered as a problem."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(CorralError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_gone)
    app.add_exception_handler(Exception, _on_anything)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, CorralError)
    return of_error(error).response()


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return of_faults(error.errors()).response()


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        detail = f"{request.method} cannot be done here; use {allowed or 'another method'}"
        return Problem("method-not-allowed", detail, headers=error.headers).response()
    if error.status_code == 404:
        return Problem("not-found", "no such path; /openapi.json lists those there are").response()
    return Problem("malformed-request", str(error.detail)).response()


async def _on_gone(request: Request, error: Exception) -> Response:
    """Nobody is there to read this."""
    return Response(status_code=400)


async def _on_anything(request: Request, error: Exception) -> Response:
    logger("gateway").error("request failed", path=request.url.path, error=type(error).__name__)
    return Problem("internal", "an unexpected error; the gateway's log has more").response()
