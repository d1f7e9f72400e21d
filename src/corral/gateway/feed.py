"""One feed of what happens in every queue, by server-sent events."""

import asyncio
import re
from contextlib import AbstractContextManager
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from corral.errors import RedisError
from corral.gateway import frames
from corral.gateway.callers import Role
from corral.gateway.describe import problems
from corral.gateway.hall import Hall, enter
from corral.gateway.headers import BEGINNING, order
from corral.gateway.problems import Problem
from corral.gateway.sse import Line
from corral.gateway.tails import Outlet, Tail
from corral.queue import Queue

router = APIRouter(tags=["events"])

NEW_QUEUES_S = 2.0
"""How often a feed looks for queues that were not there when it began."""
OVERLAP_MS = 2000
"""How far back a resumed feed goes in the other queues: their events are not in one order."""

_FEED_ID = re.compile(r"([0-9]{1,20}-[0-9]{1,20})@([^/]{1,32})/(.{1,255})")

DESCRIPTION = """`event: hello`, then every event of every queue from now on, in the words all protocols
share; comments as heartbeats. `id:` is the stream id, the protocol and the queue. A feed that resumes after
`Last-Event-ID` misses nothing that is kept, and may tell the last two seconds of other queues again."""


EXAMPLE = """id: 1767225600000-0@bullmq/mail
event: stalled
data: {"id":"1767225600000-0","protocol":"bullmq","queue":"mail","at":1767225600000,"kind":"stalled"}

"""


def key_of(queue: Queue) -> str:
    """What the feed calls a queue."""
    return f"{queue.protocol.spec.name}/{queue.name}"


@router.get(
    "/v1/events",
    operation_id="tailEverything",
    description=DESCRIPTION,
    response_class=Response,
    responses=problems(
        *(400, 401, 403, 404, 429, 503),
        more={
            200: {
                "description": "Server-sent events.",
                "content": {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}},
            }
        },
    ),
)
async def feed(
    request: Request,
    protocol: Annotated[str | None, Query(description="Only queues of this protocol.")] = None,
    queue: Annotated[str | None, Query(description="Only queues of this name.")] = None,
    last_event_id: Annotated[str | None, Header(description="The last event that was seen.")] = None,
) -> Response:
    hall, caller = enter(request, Role.READ)
    if hall.settings.ownership:
        enter(request, Role.OPERATE)
    resume = _resume(last_event_id)
    hall.check_protocol(caller)
    queues = [
        found for found in await hall.ask(hall.directory.queues(protocol)) if queue in (None, found.name)
    ]
    starts = await hall.ask(asyncio.gather(*(_start(found, resume) for found in queues)))
    positions = {key_of(found): position for found, position in zip(queues, starts, strict=True)}
    return FeedResponse(hall, positions, (protocol, queue), hall.slot(caller))


def _resume(given: str | None) -> tuple[str, str] | None:
    """(the last event's id, the key of its queue)"""
    if not given:
        return None
    found = _FEED_ID.fullmatch(given)
    if found is None or max(order(found[1])) >= 2**64:
        detail = f"{given[:60]!a} is no id of this feed; send one that it gave, or none for from now on"
        raise Problem("invalid-last-event-id", detail)
    return found[1], f"{found[2]}/{found[3]}"


async def _start(queue: Queue, resume: tuple[str, str] | None) -> str:
    """Where a queue's part of the feed begins."""
    if resume is None:
        return (await queue.events.extent()).last or BEGINNING
    event_id, key = resume
    return event_id if key == key_of(queue) else f"{max(order(event_id)[0] - OVERLAP_MS, 0)}-0"


class FeedResponse(Response):
    """Server-sent events of many queues, also of those that come later."""

    def __init__(
        self,
        hall: Hall,
        positions: dict[str, str],
        filters: tuple[str | None, str | None],
        slot: AbstractContextManager[None],
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._hall = hall
        self._positions = positions
        self._filters = filters
        self._slot = slot
        self._tails: dict[str, Tail] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        feeds, settings = self._hall.feeds, self._hall.settings
        outlet = feeds.outlet()
        with self._slot:
            for key, position in self._positions.items():
                self._tails[key] = feeds.join(key, position, outlet)
            finding = asyncio.create_task(self._find_more(outlet))
            hello = frames.own("hello", retry_ms=settings.retry_ms, queues=list(self._positions))
            try:
                line = Line(settings, scope, receive, send)
                if not await line.stream(outlet, hello, self._look):
                    feeds.cut += 1
            finally:
                finding.cancel()
                for tail in self._tails.values():
                    feeds.leave(tail)

    def _look(self) -> None:
        for key in self._tails:
            self._hall.feeds.look(key)

    async def _find_more(self, outlet: Outlet) -> None:
        protocol, name = self._filters
        while True:
            await asyncio.sleep(NEW_QUEUES_S)
            try:
                queues = await self._hall.directory.queues(protocol)
            except RedisError:
                continue
            for queue in queues:
                key = key_of(queue)
                if key not in self._tails and name in (None, queue.name):
                    self._tails[key] = self._hall.feeds.join(key, BEGINNING, outlet)
