"""Hall: what all requests of one process share, from the first to the last."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fastapi import Request

from corral.app import Corral
from corral.core.http_api import AdmissionLimits, HttpApi
from corral.core.ports import Limit
from corral.errors import InvalidOptions
from corral.gateway.callers import Caller, Role
from corral.gateway.directory import Directory
from corral.gateway.feeding import FeedSource
from corral.gateway.guard import CALLER
from corral.gateway.metrics import GatewayMetrics
from corral.gateway.patience import Patience
from corral.gateway.problems import Problem
from corral.gateway.settings import Settings
from corral.gateway.tails import Tails
from corral.protocols import names_with_http, protocol_named
from corral.queue import Queue

T = TypeVar("T")

LINK_ANSWER_S = 2.0
PUBLISH_S = 1.0


class Hall:
    """One server's protocols as the gateway sees them, and the tails that are open."""

    http: HttpApi
    tails: Tails
    feeds: Tails

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        url = _impatient(settings.redis_url)
        self.corral = Corral(url, namespaces=settings.namespaces, folder=settings.folder)
        self.queue: Queue = self.corral.queue(protocol=settings.protocol)
        """The queue that /v1/jobs serves."""
        rate = Limit(settings.client_jobs, settings.client_window_s * 1000) if settings.client_jobs else None
        self.bounds = AdmissionLimits(backlog=settings.max_backlog, rate=rate)
        self.metrics = GatewayMetrics(self.corral.metrics.registry)
        self.is_stopping = False
        self._tails_of: Counter[str] = Counter()
        self._patience = Patience(settings.answer_s, lambda: self.corral.store().call("PING"))
        self.directory = Directory(self.corral)
        protocol = protocol_named(settings.protocol)
        if not protocol.spec.has_http:
            able = " or ".join(map(repr, names_with_http()))
            raise InvalidOptions(
                f"protocol {protocol.spec.name!r} has no HTTP contract; set CORRAL_PROTOCOL to {able}"
            )

    async def open(self) -> None:
        """Make the connections of this event loop; the server need not be there yet."""
        self.http = self.queue.http
        settings = self.settings
        self.tails = Tails(self.http, self._patience, settings, settings.sweep_s)
        self.feeds = Tails(FeedSource(self.corral), self._patience, settings, settings.feed_s)
        for tails in (self.tails, self.feeds):
            tails.start()
        self._publishing = asyncio.create_task(self._publish_often())

    def stop(self) -> None:
        """End what would go on for long; what is short may come to its end."""
        self.is_stopping = True
        self.tails.stop()
        self.feeds.stop()

    async def close(self) -> None:
        """Let go of everything."""
        self.stop()
        await self.tails.close()
        await self.feeds.close()
        self._publishing.cancel()
        self.metrics.close()
        await self.corral.close()

    def publish(self) -> None:
        """Take over the numbers of the tails."""
        self.metrics.count_tails("job", self.tails)
        self.metrics.count_tails("feed", self.feeds)

    async def _publish_often(self) -> None:
        # another process may be asked for this one's numbers
        while True:
            self.publish()
            await asyncio.sleep(PUBLISH_S)

    async def ask(self, answer: Awaitable[T]) -> T:
        """What the server answers, if it does in time."""
        return await self._patience.ask(answer)

    def owner(self, caller: Caller) -> str | None:
        """Whose the jobs are that a caller asks for; None where nobody owns any."""
        return caller.name if self.settings.ownership else None

    def sight(self, caller: Caller) -> str | None:
        """Whose jobs a caller sees; None where it sees them all."""
        return None if caller.sees_all else self.owner(caller)

    # -- tails --------------------------------------------------------------------------------------------

    def has_protocol(self, caller: Caller) -> bool:
        """May this caller open one tail more?"""
        settings = self.settings
        return (
            self._tails_of[caller.name] < settings.tails_per_client and self.tails.count < settings.max_tails
        )

    def check_protocol(self, caller: Caller) -> None:
        """Refuse a tail where no more may be opened."""
        if self.is_stopping:
            raise Problem("stopping", "the gateway is stopping; come back")
        if not self.has_protocol(caller):
            most = self.settings.tails_per_client
            raise Problem(
                "too-many-tails",
                f"{self._tails_of[caller.name]} tails of this client are open, of at most {most}; close some",
                headers={"Retry-After": str(self.settings.retry_after_s)},
            )

    @contextmanager
    def slot(self, caller: Caller) -> Iterator[None]:
        """Count a tail of this caller while the block lasts."""
        self._tails_of[caller.name] += 1
        try:
            yield
        finally:
            self._tails_of[caller.name] -= 1
            if not self._tails_of[caller.name]:
                del self._tails_of[caller.name]


def _impatient(url: str | None) -> str | None:
    """The address with a short time to answer, unless it names one: a dead connection is soon replaced."""
    if url is None or "socket_timeout=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}socket_timeout={LINK_ANSWER_S:g}"


def enter(request: Request, role: Role) -> tuple[Hall, Caller]:
    """The hall and who calls, if they may."""
    caller: Caller = request.scope[CALLER]
    if role not in caller.roles:
        raise Problem("forbidden", f"this needs the role {role.value!r}, which the key {caller.name!r} lacks")
    hall: Hall = request.scope["state"]["hall"]
    return hall, caller
