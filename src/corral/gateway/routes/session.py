"""Sign-in: a session for a key, its end, and who the client is; and the audit log."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from corral.gateway import documents
from corral.gateway.openapi import problem_responses, with_body
from corral.gateway.problems import Problem
from corral.gateway.requests import parse_event_id, read_json
from corral.gateway.responses import json_response
from corral.gateway.routes.dependencies import NamedRoute, PageSize, QueueRoute, authorize, state_of
from corral.gateway.security.auth import SCOPE_CLIENT, ApiClient, Role
from corral.gateway.security.sessions import cookie_header, csrf_token, session_token

router = APIRouter(tags=["sessions"], route_class=NamedRoute, responses=problem_responses(401, 403, 503))
changes = APIRouter(tags=["sessions"], route_class=QueueRoute, responses=problem_responses(401, 403, 503))


@router.get("/v1/session", response_model=documents.SessionView)
async def get_session(request: Request) -> Response:
    """Return who the client is and what it may do; without roles where it must sign in first."""
    client: ApiClient = request.scope[SCOPE_CLIENT]
    has_key = "authorization" in request.headers
    token = None if has_key else session_token(request.headers.get("cookie", "").encode("latin-1"))
    return _show(request, client, token if client.name else None)


@router.post("/v1/session", response_model=documents.SessionView, **with_body(documents.SessionRequest))
async def sign_in(request: Request) -> Response:
    """Start a session with a key: a cookie that scripts cannot read, and a token for changes."""
    state = state_of(request)
    body, _ = await read_json(request, documents.SessionRequest, state.settings)
    client = state.keys.client_of(body.key.strip())
    if client is None:
        raise Problem("unauthorized", "this key is not known")
    token = await state.call(state.sessions.start(client))
    response = _show(request, client, token)
    response.headers["Set-Cookie"] = _cookie(request, token, state.sessions.seconds)
    return response


@router.delete("/v1/session", response_model=documents.SessionView)
async def sign_out(request: Request) -> Response:
    """End the session."""
    state = state_of(request)
    token = session_token(request.headers.get("cookie", "").encode("latin-1"))
    if token is not None:
        await state.call(state.sessions.end(token))
    response = _show(request, ApiClient("", frozenset()), None)
    response.headers["Set-Cookie"] = _cookie(request, "", 0)
    return response


def _show(request: Request, client: ApiClient, token: str | None) -> Response:
    return json_response(
        {
            "name": client.name,
            "roles": sorted(client.roles),
            "csrf": "-" if token is None else csrf_token(token),
            "has_session": token is not None,
            "read_only": state_of(request).settings.read_only,
            "has_lake": state_of(request).history.has_lake,
        }
    )


def _cookie(request: Request, token: str, seconds: int) -> str:
    path = f"{request.scope.get('root_path', '')}/"
    return cookie_header(token, path, seconds, request.url.scheme == "https")


@changes.get("/v1/audit", response_model=documents.AuditPage, responses=problem_responses(400, 422))
async def list_changes(
    request: Request,
    cursor: Annotated[str, Query(description="The `next` of the page before.", max_length=41)] = "",
    limit: PageSize = 100,
) -> Response:
    """List who changed what, through HTTP or the command line, the latest first."""
    state, _ = authorize(request, Role.OPERATE)
    entries = await state.audit.page((cursor and parse_event_id(cursor)) or "+", limit)
    following = entries[-1].id if len(entries) == limit else None
    return json_response({"entries": [msgspec.to_builtins(entry) for entry in entries], "next": following})


router.include_router(changes)
