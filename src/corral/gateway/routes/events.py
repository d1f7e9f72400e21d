"""Server-sent events: of one job, and of all queues."""

import asyncio
import re
from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from corral.core.http_api import TailState
from corral.errors import RedisWrongTypeError
from corral.gateway.openapi import problem_responses, text_response
from corral.gateway.problems import Problem
from corral.gateway.requests import BEGINNING, NOW, id_order, parse_event_id
from corral.gateway.routes.dependencies import NamedRoute, authorize, authorize_all_jobs
from corral.gateway.routes.jobs import visible
from corral.gateway.security.auth import Role
from corral.gateway.sse.feed import key_of
from corral.gateway.sse.frames import gateway_frame
from corral.gateway.sse.response import TailResponse
from corral.queue import Queue

OVERLAP_MS = 2000
"""How far back a resumed feed starts in the other queues: their events have no common order."""

_FEED_ID = re.compile(r"([0-9]{1,20}-[0-9]{1,20})@([^/]{1,32})/(.{1,255})")

JOB_DESCRIPTION = """`event: hello`, then the job's events from the beginning or after the last event id, each
with its stream id; comments as heartbeats. The stream ends after `done`, `error` or `canceled`; a reconnect
after that gets 204, at which an EventSource stops. Events `gateway.…` are the gateway's own: `gateway.gap`
(events were trimmed), `gateway.expired`, `gateway.disconnected` and `gateway.reconnected` (Redis),
`gateway.timeout` (the client did not read), `gateway.stop` (reconnect), `gateway.ended`, `gateway.error`."""
JOB_EXAMPLE = """id: 1767225600000-0
event: queued
data: {"type":"queued","ts":1767225600000,"step":"gateway.enqueue","data":{}}

"""
FEED_DESCRIPTION = """`event: hello`, then every event of every queue from now on, in the words all protocols
share; comments as heartbeats. `id:` is the stream id, the protocol and the queue. A feed that resumes after
`Last-Event-ID` misses no event that is kept, and may repeat the last two seconds of other queues."""
FEED_EXAMPLE = """id: 1767225600000-0@bullmq/mail
event: stalled
data: {"id":"1767225600000-0","protocol":"bullmq","queue":"mail","at":1767225600000,"kind":"stalled"}

"""

LastEventId = Annotated[str | None, Header(description="The id of the last event that was received.")]

router = APIRouter(tags=["events"], route_class=NamedRoute, responses=problem_responses(401, 403, 503))


@router.get(
    "/v1/jobs/{job_id}/events",
    description=JOB_DESCRIPTION,
    response_class=Response,
    responses=problem_responses(
        *(400, 404, 429),
        more={
            **text_response("Server-sent events.", "text/event-stream", JOB_EXAMPLE),
            204: {"description": "The job has ended, and its last event was received."},
        },
    ),
)
async def tail_job(
    request: Request,
    job_id: str,
    last_event_id: LastEventId = None,
    last_id: Annotated[str | None, Query(description="The same, for a first request.")] = None,
) -> Response:
    state, client = authorize(request, Role.READ)
    # a reconnecting browser repeats the URL: the header is newer
    after = parse_event_id(last_event_id or last_id)
    with ExitStack() as slot:
        slot.enter_context(state.tail_slot(client))
        job = visible(state, client, job_id, await state.call(state.http.tail_state(job_id)))
        position = (job.last if after == NOW else after) or BEGINNING
        if _has_received_end(position, job):
            return Response(status_code=204)
        settings = state.settings
        hello = gateway_frame(
            "hello", retry_ms=settings.retry_ms, job_id=job_id, status=job.status, last_id=position
        )
        hello += _gap(position, job)
        if job.last is not None and id_order(position) > id_order(job.last):
            position = job.last
        return TailResponse(state.tails, settings, hello, {job_id: position}, slot.pop_all())


def _has_received_end(position: str, job: TailState) -> bool:
    if not job.has_final_event or job.last is None or position == BEGINNING:
        return False
    return id_order(position) >= id_order(job.last)


def _gap(position: str, job: TailState) -> bytes:
    """Return a frame about events that are missing already; the hub reports those that go missing later."""
    if position == BEGINNING and job.missing:
        reason = f"{job.missing} of the job's events are gone"
    elif position != BEGINNING and job.first is None:
        reason = "the job's events are gone"
    elif job.last is not None and id_order(position) > id_order(job.last):
        reason = f"the job has no event later than {job.last} yet; later ones follow"
    else:
        return b""
    return gateway_frame("gateway.gap", after=position, first=job.first, reason=reason)


@router.get(
    "/v1/events",
    description=FEED_DESCRIPTION,
    response_class=Response,
    responses=problem_responses(
        *(400, 404, 429),
        more=text_response("Server-sent events.", "text/event-stream", FEED_EXAMPLE),
    ),
)
async def tail_queues(
    request: Request,
    protocol: Annotated[str | None, Query(description="Only queues of this protocol.")] = None,
    queue: Annotated[str | None, Query(description="Only queues of this name.")] = None,
    last_event_id: LastEventId = None,
) -> Response:
    state, client = authorize_all_jobs(request)
    after = _parse_feed_id(last_event_id)
    settings = state.settings

    async def list_keys() -> list[str]:
        return list(map(key_of, await state.queue_cache.queues(protocol, queue)))

    with ExitStack() as slot:
        slot.enter_context(state.tail_slot(client))
        queues = await state.call(state.queue_cache.queues(protocol, queue))
        starts = await state.call(asyncio.gather(*(_start(each, after) for each in queues)))
        positions = {key_of(each): start for each, start in zip(queues, starts, strict=True)}
        hello = gateway_frame("hello", retry_ms=settings.retry_ms, queues=list(positions))
        if after is not None and id_order(positions.get(after[1], after[0])) < id_order(after[0]):
            last = positions[after[1]]
            reason = f"{after[1]} has no event later than {last} yet; later ones follow"
            hello += gateway_frame("gateway.gap", after=after[0], first=None, reason=reason)
        return TailResponse(state.feeds, settings, hello, positions, slot.pop_all(), list_keys)


def _parse_feed_id(feed_id: str | None) -> tuple[str, str] | None:
    """Return the stream id and the queue's key of a feed's event id."""
    if not feed_id:
        return None
    match = _FEED_ID.fullmatch(feed_id)
    if match is None or max(id_order(match[1])) >= 2**64:
        detail = (
            f"{feed_id[:60]!a} is not an event id of this feed; send one that it sent, or none to start now"
        )
        raise Problem("invalid-last-event-id", detail)
    return match[1], f"{match[2]}/{match[3]}"


async def _start(queue: Queue, after: tuple[str, str] | None) -> str:
    """Return the position at which a queue's part of the feed starts: at most its last event's."""
    try:
        last = (await queue.events.extent()).last or BEGINNING
    except RedisWrongTypeError:
        return BEGINNING  # the hub reports what cannot be read
    if after is None:
        return last
    event_id, key = after
    start = event_id if key == key_of(queue) else f"{max(id_order(event_id)[0] - OVERLAP_MS, 0)}-0"
    return min(start, last, key=id_order)
