"""GatewayState: what the requests of one process share."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from corral.app import Corral
from corral.audit import AuditLog
from corral.core.http_api import AdmissionLimits
from corral.core.ports import Limit
from corral.errors import InvalidOptions
from corral.gateway.activity import Activity
from corral.gateway.connection import ConnectionLimits
from corral.gateway.deadline import Deadline
from corral.gateway.history import History
from corral.gateway.metrics import GatewayMetrics
from corral.gateway.problems import Problem
from corral.gateway.queue_cache import QueueCache
from corral.gateway.security.auth import ApiClient, ApiKeys, Role
from corral.gateway.security.sessions import Sessions
from corral.gateway.settings import GatewaySettings
from corral.gateway.sse.feed import FeedSource
from corral.gateway.sse.hub import TailHub
from corral.gateway.tasks import BulkTasks
from corral.protocols import all_protocols, names_with_http, protocol_named

T = TypeVar("T")

SOCKET_TIMEOUT_S = 2.0
PUBLISH_S = 1.0
"""How often the tails' metrics are published: another process may answer /metrics."""


class GatewayState:
    """The app, its queues, the open tails and the metrics of one process."""

    def __init__(self, settings: GatewaySettings, keys: ApiKeys, app: Corral | None = None) -> None:
        self.settings = settings
        self.keys = keys
        protocol = protocol_named(settings.protocol).spec
        if not protocol.has_http:
            names = " or ".join(map(repr, names_with_http()))
            raise InvalidOptions(
                f"protocol {protocol.name!r} has no HTTP contract; set CORRAL_PROTOCOL to {names}"
            )
        url, namespaces, bullmq = settings.redis_url, settings.namespaces, settings.bullmq
        if app is not None:
            bullmq = bullmq or app.bullmq
            url = url or app.url
            namespaces = {each.spec.name: app.namespace(each) for each in all_protocols()} | namespaces
        self.corral = Corral(_with_timeout(url), namespaces=namespaces, bullmq=bullmq, folder=settings.folder)
        if app is not None:
            self.corral.know(app)
        self.queue = self.corral.queue(protocol=settings.protocol)
        """The queue that /v1/jobs serves."""
        rate = Limit(settings.client_jobs, settings.client_window_s * 1000) if settings.client_jobs else None
        self.limits = AdmissionLimits(backlog=settings.max_backlog, rate=rate)
        self.metrics = GatewayMetrics(self.corral.metrics.registry)
        self.queue_cache = QueueCache(self.corral)
        self.connections = ConnectionLimits(settings.max_connections, settings.connections_per_address)
        self.is_stopping = False
        self._tails_by_client: Counter[str] = Counter()
        self._deadline = Deadline(settings.redis_timeout_s, lambda: self.corral.store().call("PING"))
        self.http = self.queue.http
        self.tails = TailHub(self.http, self._deadline, settings, settings.sweep_s)
        self.activity = Activity(self.corral, self.queue_cache)
        self.activity_tails = TailHub(self.activity, self._deadline, settings, settings.sweep_s)
        self.tasks = BulkTasks(self.corral)
        self.history = History(settings.lake)
        self.sessions = Sessions(self.corral, keys, settings.session_s)
        self.feeds = TailHub(FeedSource(self.corral), self._deadline, settings, settings.feed_s)

    def start(self) -> None:
        """Start the tails' tasks; Redis need not be available yet."""
        self.tails.start()
        self.feeds.start()
        self.activity_tails.start()
        self._following = asyncio.create_task(self.activity.run())
        self._publishing = asyncio.create_task(self._publish_regularly())

    def stop(self) -> None:
        """End the tails; short requests continue."""
        self.is_stopping = True
        self.tails.stop()
        self.feeds.stop()
        self.activity_tails.stop()

    async def close(self) -> None:
        """Stop, and close the connections."""
        self.stop()
        await self.tails.close()
        await self.feeds.close()
        await self.activity_tails.close()
        await self.tasks.close()
        self._following.cancel()
        self._publishing.cancel()
        self.metrics.close()
        await self.corral.close()

    def publish(self) -> None:
        """Publish the tails' metrics."""
        self.metrics.set_tails("job", self.tails)
        self.metrics.set_tails("feed", self.feeds)
        self.metrics.set_tails("activity", self.activity_tails)

    async def _publish_regularly(self) -> None:
        while True:
            self.publish()
            await asyncio.sleep(PUBLISH_S)

    @property
    def audit(self) -> AuditLog:
        """The audit log."""
        return AuditLog(self.corral.store())

    async def call(self, result: Awaitable[T]) -> T:
        """Return the result; raise `RedisConnectionError` where Redis does not answer in time."""
        return await self._deadline.call(result)

    def owner_of(self, client: ApiClient) -> str | None:
        """Return the owner of the jobs that a client creates; None where jobs have no owners."""
        return client.name if self.settings.ownership else None

    def visible_owner(self, client: ApiClient) -> str | None:
        """Return whose jobs a client may read; None where it may read all."""
        return None if Role.OPERATE in client.roles else self.owner_of(client)

    def client_metrics(self, client: ApiClient) -> bytes:
        """Return the metrics of one client."""
        return self.metrics.of_client(client.name, self._tails_by_client[client.name])

    # -- limits of tails ------------------------------------------------------------------------------------

    def may_tail(self, client: ApiClient) -> bool:
        """Return whether this client may open one more tail."""
        settings, counts = self.settings, self._tails_by_client
        is_below = counts[client.name] < settings.tails_per_client
        return not self.is_stopping and is_below and counts.total() < settings.max_tails

    @contextmanager
    def tail_slot(self, client: ApiClient) -> Iterator[None]:
        """Count a tail of this client while the block lasts; refuse it where no more may be opened.

        Enter it before the first await of a request: others would pass the same check meanwhile.
        """
        if self.is_stopping:
            raise Problem("stopping", "the gateway is stopping; reconnect")
        if not self.may_tail(client):
            count, limit = self._tails_by_client[client.name], self.settings.tails_per_client
            raise Problem(
                "too-many-tails",
                f"this client has {count} open tails of at most {limit}, all together at most "
                f"{self.settings.max_tails}; close some",
                headers={"Retry-After": str(self.settings.retry_after_s)},
            )
        self._tails_by_client[client.name] += 1
        try:
            yield
        finally:
            self._tails_by_client[client.name] -= 1
            if not self._tails_by_client[client.name]:
                del self._tails_by_client[client.name]


def _with_timeout(url: str | None) -> str | None:
    """Return the URL with a short socket timeout, unless it names one: dead connections are soon replaced."""
    if url is None or "socket_timeout=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}socket_timeout={SOCKET_TIMEOUT_S:g}"
