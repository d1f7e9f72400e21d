"""What routes share: authorization, the queue of a path, names with slashes, the deadline of calls."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, Query, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from corral.audit import MAX_DETAIL
from corral.errors import RedisError
from corral.gateway.connection import STATE
from corral.gateway.openapi import operation_id
from corral.gateway.problems import Problem, of_validation
from corral.gateway.requests import SCOPE_BODY
from corral.gateway.security.auth import SCOPE_CLIENT, ApiClient, Role
from corral.gateway.state import GatewayState
from corral.queue import Queue
from corral.telemetry.logs import logger

_INNER_SLASH = "\ufdd0"
"""Stands for a name's own slash while routes are matched; a noncharacter, which no text contains."""

Cursor = Annotated[str, Query(description="The `next` of the page before.", max_length=10_000)]
PageSize = Annotated[int, Query(ge=1, le=500)]


def state_of(request: Request) -> GatewayState:
    """Return the state that all requests share."""
    state: GatewayState = request.scope["state"][STATE]
    return state


def authorize(request: Request, role: Role) -> tuple[GatewayState, ApiClient]:
    """Return the state and the request's client; 403 where it lacks the role."""
    client: ApiClient = request.scope[SCOPE_CLIENT]
    if role not in client.roles:
        raise Problem("forbidden", f"this needs the role {role.value!r}, which the key {client.name!r} lacks")
    return state_of(request), client


def authorize_all_jobs(request: Request) -> tuple[GatewayState, ApiClient]:
    """Return the same; 403 where the client may not read the jobs of all clients."""
    state, client = authorize(request, Role.READ)
    return authorize(request, Role.OPERATE) if state.settings.ownership else (state, client)


async def _readable_queue(request: Request, protocol: str, queue: str) -> Queue:
    state, _ = authorize_all_jobs(request)
    return await state.queue_cache.queue(protocol, queue)


async def _operable_queue(request: Request, protocol: str, queue: str) -> Queue:
    state, _ = authorize(request, Role.OPERATE)
    return await state.queue_cache.queue(protocol, queue)


async def _changeable_queue(request: Request, protocol: str, queue: str, verb: str) -> Queue:
    return await (_erasable_queue if verb == "remove" else _operable_queue)(request, protocol, queue)


async def _erasable_queue(request: Request, protocol: str, queue: str) -> Queue:
    state, _ = authorize(request, Role.ADMIN)
    return await state.queue_cache.queue(protocol, queue)


ReadableQueue = Annotated[Queue, Depends(_readable_queue)]
"""The queue of the path, for clients that may read it."""
OperableQueue = Annotated[Queue, Depends(_operable_queue)]
"""The queue of the path, for clients that may change it."""
ChangeableQueue = Annotated[Queue, Depends(_changeable_queue)]
"""The queue of the path, for clients that may do the verb of the path."""
ErasableQueue = Annotated[Queue, Depends(_erasable_queue)]
"""The queue of the path, for clients that may delete its jobs."""


def keep_inner_slashes(scope: Scope) -> None:
    """Split the path only at the slashes that were sent as such."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        parts = raw.decode("latin-1").split("/")
        scope["path"] = "/".join(unquote(part).replace("/", _INNER_SLASH) for part in parts)


def route_path(scope: Scope) -> str:
    """Return the path within the gateway, wherever it is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class NamedRoute(APIRoute):
    """A route whose parameters have the slashes they were sent with, and that refuses unknown ones."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        known = frozenset(parameter.alias for parameter in self.dependant.query_params)

        async def handle_known(request: Request) -> Response:
            for name in request.query_params:
                if name not in known:
                    fault = {
                        "loc": ("query", name),
                        "msg": f"unknown; known are: {', '.join(sorted(known)) or 'none'}",
                    }
                    raise of_validation([fault])
            return await handle(request)

        return handle_known

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        parameters: dict[str, Any] = child_scope.get("path_params", {})
        for name, value in parameters.items():
            if isinstance(value, str):
                parameters[name] = value.replace(_INNER_SLASH, "/")
        return match, child_scope


class QueueRoute(NamedRoute):
    """A route that fails with 503 where Redis does not answer in time."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_in_time(request: Request) -> Response:
            state = state_of(request)
            response = await state.call(handle(request))
            if request.method not in ("GET", "HEAD"):
                await _record(request, response, operation_id(self))
            return response

        return handle_in_time


async def _record(request: Request, response: Response, action: str) -> None:
    """Record a change in the audit log."""
    client: ApiClient = request.scope[SCOPE_CLIENT]
    path = request.path_params
    subject = path.get("job_id") or path.get("schedule_id") or path.get("task_id") or ""
    body: bytes = request.scope.get(SCOPE_BODY, b"")
    record = state_of(request).audit.record(
        actor=client.name,
        via="http",
        action=f"{action} {path['verb']}" if "verb" in path else action,
        protocol=path.get("protocol", ""),
        queue=path.get("queue", ""),
        subject=subject,
        outcome=str(response.status_code),
        detail=body[:MAX_DETAIL].decode("utf-8", "replace"),
    )
    try:
        await record
    except RedisError as error:
        # the change itself was made
        logger("gateway").warning("the audit log cannot be written", error=str(error))
