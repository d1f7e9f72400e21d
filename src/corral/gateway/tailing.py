"""One job's events as they come, by server-sent events."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from corral.core.http_api import TailState
from corral.gateway import frames, headers
from corral.gateway.callers import Role
from corral.gateway.describe import problems
from corral.gateway.hall import enter
from corral.gateway.jobs import no_job
from corral.gateway.paths import NamedRoute
from corral.gateway.sse import TailResponse

router = APIRouter(tags=["events"], route_class=NamedRoute)

DESCRIPTION = """`event: hello`, then the job's events from its beginning or from after the one that is named,
each with its stream id; comments as heartbeats. Ends after `done`, `error` or `canceled`; a reconnect that
has seen the end already gets 204, at which an EventSource stops. Events `gateway.…` are the gateway's own:
`gateway.gap` (events were trimmed), `gateway.expired`, `gateway.away` and `gateway.back` (the job server),
`gateway.cut` (the client did not read), `gateway.stop` (come back), `gateway.over`, `gateway.broken`."""

EXAMPLE = """id: 1767225600000-0
event: queued
data: {"type":"queued","ts":1767225600000,"step":"gateway.enqueue","data":{}}

"""


@router.get(
    "/v1/jobs/{job_id}/events",
    operation_id="tailJob",
    description=DESCRIPTION,
    response_class=Response,
    responses=problems(
        *(400, 401, 403, 404, 429, 503),
        more={
            200: {
                "description": "Server-sent events.",
                "content": {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}},
            },
            204: {"description": "The job is over, and its end was seen."},
        },
    ),
)
async def tail(
    request: Request,
    job_id: str,
    last_event_id: Annotated[str | None, Header(description="The last event that was seen.")] = None,
    last_id: Annotated[str | None, Query(description="The same, for a first request.")] = None,
) -> Response:
    hall, caller = enter(request, Role.READ)
    after = headers.last_event_id(last_event_id, last_id)
    hall.check_protocol(caller)
    peek = await hall.ask(hall.http.tail_state(job_id))
    if peek is None or hall.sight(caller) not in (None, peek.owner):
        raise no_job(job_id)
    position = _position(after, peek)
    if _has_seen_the_end(position, peek):
        return Response(status_code=204)
    hello = frames.own(
        "hello", retry_ms=hall.settings.retry_ms, job_id=job_id, status=peek.status, last_id=position
    )
    hello += _gap(position, peek)
    return TailResponse(hall.tails, job_id, position, hello, hall.settings, hall.slot(caller))


def _position(after: str | None, peek: TailState) -> str:
    if after == headers.NOW:
        return peek.last or headers.BEGINNING
    return after or headers.BEGINNING


def _has_seen_the_end(position: str, peek: TailState) -> bool:
    if not peek.has_final_event or peek.last is None or position == headers.BEGINNING:
        return False
    return headers.order(position) >= headers.order(peek.last)


def _gap(position: str, peek: TailState) -> bytes:
    """Words about events that are gone already; what goes missing later, the tail itself tells."""
    if position == headers.BEGINNING and peek.missing:
        reason = f"{peek.missing} of the job's events are gone"
    elif position != headers.BEGINNING and peek.first is None:
        reason = "no event of this job is kept any more"
    else:
        return b""
    return frames.own("gateway.gap", after=position, first=peek.first, reason=reason)
