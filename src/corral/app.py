"""Corral, the application object: its server, queues, handlers and schedules."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack
from weakref import WeakKeyDictionary

import msgspec

from corral.core.job import Backoff, Keep
from corral.core.known_errors import FailureKind
from corral.core.options import (
    Capability,
    Durability,
    OptionValues,
    checked_attempts,
    checked_backoff,
    seconds,
)
from corral.core.outcome import RetryPolicy
from corral.core.ports import Gauge, Profile
from corral.core.retry import BackoffRule, Errors, classifier
from corral.durability import DEFAULT_TIMEOUT_S, DurabilityWaiters
from corral.errors import InvalidName, InvalidOptions, RedisResponseError
from corral.hooks import Hooks
from corral.job_call import JobCall, with_children
from corral.job_type import JobDecorator, JobType, JobTypes, job_type_of
from corral.protocols import DEFAULT_PROTOCOL, given_generations, in_one_slot, names_with, protocol_named
from corral.protocols.base import Binding, Ports, Protocol
from corral.queue import Queue
from corral.results import ResultListener
from corral.running import SharedLifespan, Signals, backlog_of, run_until_idle, serve_all, to_each
from corral.schedules import ScheduledJob, declare, rule_of
from corral.store.address import is_cluster
from corral.store.client import PerLoopStore, Reconnect, Store
from corral.store.clock import ServerClock
from corral.store.cluster import has_tag
from corral.store.embedded import EmbeddedServer
from corral.sync import SyncRunner
from corral.telemetry.logs import logger, warn_of_clock
from corral.worker import (
    ANY_NAME,
    DEFAULT_CONCURRENCY,
    Connections,
    HandlerKind,
    HandlerRegistry,
    Listener,
    WorkerConfig,
    wall_clock,
)
from corral.worker_options import (
    IDENTITY,
    ProfileOptions,
    WorkerOptions,
    check_names,
    heartbeat_of,
    processes_of,
    profile_of,
)

if TYPE_CHECKING:
    from corral.telemetry.metrics import Metrics
    from corral.worker.worker import Worker

R = TypeVar("R")

GRACE_S = 30.0
"""How long active jobs may go on after the first signal."""

REQUIRE_REDIS = "CORRAL_REQUIRE_REDIS"
"""Set to 1 in production: without an address, no private server is started."""

MISTAKEN_NAMES = ("REDIS_URI", "REDIS_HOST", "REDIS_ADDRESS", "REDIS_SERVER", "REDISURL", "CORRAL_URL",
                  "CORRAL_REDIS_URL", "BROKER_URL", "CELERY_BROKER_URL")  # fmt: skip
"""Variables that others read for what is REDIS_URL here."""


class Corral(Hooks):
    """One server, its queues and their handlers.

    With no URL, `REDIS_URL` is used; where that is not set either, a private server is started in `folder`
    and shared with every other process that uses that folder.

    >>> app = Corral("redis://127.0.0.1:6379")
    >>> @app.job(queue="mail", attempts=5, timeout=timedelta(seconds=30))
    ... async def send_email(to: str, subject: str = "") -> None: ...
    >>> send_email
    JobType('send_email', queue='mail', protocol='bullmq')
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        protocol: str = DEFAULT_PROTOCOL,
        namespaces: Mapping[str, str] | None = None,
        bullmq: int | None = None,
        folder: Path | str | None = None,
        retry_on: Errors = (),
        give_up_on: Errors = (),
        retry_unknown: bool = False,
        default_attempts: int = 1,
        default_backoff: int | timedelta | str | Backoff | Mapping[str, Any] | None = None,
        backoff: BackoffRule | None = None,
        keep_completed: int | timedelta | Keep | Mapping[str, Any] | None = None,
        keep_dead: int | timedelta | Keep | Mapping[str, Any] | None = None,
        unknown_after: float | timedelta | None = None,
        durability: Durability = "memory",
        durability_timeout: float | timedelta = DEFAULT_TIMEOUT_S,
        lifespan: Callable[["Corral"], AbstractAsyncContextManager[Any]] | None = None,
        clock: Callable[[], int] | None = None,
        metrics: "Metrics | None" = None,
    ) -> None:
        super().__init__(nullcontext if lifespan is None else lambda: lifespan(self))
        self._url = url or os.environ.get("REDIS_URL") or None
        self._folder = folder
        self._embedded: EmbeddedServer | None = None
        self._default_protocol = protocol_named(protocol)
        self._namespaces = dict(namespaces or {})
        self.bullmq = bullmq
        self._generations = given_generations(bullmq=bullmq)
        self._store = PerLoopStore(lambda: self.url)
        self._results: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], ResultListener]] = (
            WeakKeyDictionary()
        )
        self._queues: dict[tuple[str, str], Queue] = {}
        self._registries: dict[tuple[str, str], HandlerRegistry] = {}
        self.job_types: JobTypes = {}
        self.job = JobDecorator(self)
        self._schedules: dict[tuple[str, str], ScheduledJob] = {}
        self._running: list[Worker] = []
        unknown = FailureKind.TRANSIENT if retry_unknown else FailureKind.PERMANENT
        self.policy = RetryPolicy(
            classify=classifier(retry_on, give_up_on, unknown),
            backoff_rule=backoff,
            default_attempts=checked_attempts("default_attempts", default_attempts),
            default_backoff=None
            if default_backoff is None
            else checked_backoff("default_backoff", default_backoff),
            random=random.random,
        )
        defaults = {"keep_completed": keep_completed, "keep_dead": keep_dead, "unknown_after": unknown_after}
        self._defaults = {name: value for name, value in defaults.items() if value is not None}
        profile_of(None, {}, self._defaults)  # refuses what does not fit
        self.durability = DurabilityWaiters(durability, seconds(durability_timeout))
        self._clock = clock or ServerClock(wall_clock, warn_of_clock)
        self._metrics = metrics
        self.sync = SyncRunner()

    # -- for producers ----------------------------------------------------------------------------------

    def schedule(
        self,
        job: str | JobType[..., Any] | JobCall[Any],
        data: Any = None,
        *,
        cron: str | None = None,
        timezone: str = "UTC",
        every: int | timedelta | None = None,
        catch_up: str = "once",
        id: str | None = None,
        queue: str | None = None,
        protocol: str | None = None,
        **options: Unpack[OptionValues],
    ) -> ScheduledJob:
        """Declare a schedule of jobs; it is written when the app runs, or by its `start`.

        The job is a job type, a call of one (`report.call("today")`), or a name with its `data`. It fires
        by a `cron` expression in a `timezone`, or `every` so many ms (or a timedelta). Queue, protocol and
        options are those of the job type or of the handler of that name, where nothing else is given; the
        id is the job's name. After a downtime `catch_up` makes up for "all" missed firings, for the last
        ("once"), or for none ("skip").

        >>> app.schedule(report, cron="*/5 * * * *", timezone="Europe/Berlin")     # doctest: +SKIP
        """
        target, name, data, own = self._scheduled(job, data, queue, protocol)
        rule = rule_of(cron, timezone, every, catch_up)
        scheduled = declare(target, name, data, id, rule, {**own, **options}, self.clock())
        known = self._schedules.setdefault((target.protocol.spec.name, scheduled.id), scheduled)
        if known is not scheduled:
            raise InvalidName(
                f"there is a schedule {scheduled.id!r} already; give this one an id of its own: id='…'"
            )
        return scheduled

    def _scheduled(
        self,
        job: str | JobType[..., Any] | JobCall[Any],
        data: Any,
        queue: str | None,
        protocol: str | None,
    ) -> tuple[Queue, str, Any, Mapping[str, Any]]:
        """Return the queue, name, data and options of a job that is to be scheduled."""
        if isinstance(job, JobCall):
            if job.children:
                raise InvalidOptions(f"{job.job_type.name!r} is a flow; a schedule adds single jobs")
            return job.job_type.queue, job.job_type.name, job.data, job.options
        if isinstance(job, JobType):
            job_type: JobType[..., Any] | None = job
            name = job.name
        else:
            job_type, name = job_type_of(self.job_types, job, queue, protocol), job
        if job_type is None:
            return self.queue(queue, protocol), name, data, {}
        job_type.signature.check({} if data is None else data)
        return job_type.queue, name, data, job_type.defaults

    def flow(self, job: JobCall[R], children: Iterable[JobCall[Any]]) -> JobCall[R]:
        """Return a job that runs after its children, whose results it reads; `add` adds them all in one step.

        Children may be flows and chains themselves. Where one is dead, the job is too, unless the child's
        option `if_dead` says otherwise.

        >>> report_flow = app.flow(report.call(day), children=[charge.call(o) for o in orders])   # doctest: +SKIP
        >>> handle = await report_flow.add()                                            # doctest: +SKIP
        """  # noqa: E501
        if job.children:
            raise InvalidOptions(
                f"{job.job_type.name!r} has jobs that run before it already; give the children to the first "
                f"of a chain, or make one list of them"
            )
        return with_children(job, list(children))

    def job_type(self, queue: Queue, name: str) -> JobType[..., Any] | None:
        """Return the type of the jobs of that name in a queue; None where this app has no handler for it."""
        return self.job_types.get((queue.protocol.spec.name, queue.name, name))

    def know(self, app: "Corral") -> None:
        """Add jobs by name as another app does: with the options of its handlers, if the data fit them."""
        self.job_types.update(app.job_types)

    def handlers(self, queue: Queue) -> HandlerRegistry:
        """Return the handlers of a queue."""
        return self._registries.setdefault((queue.protocol.spec.name, queue.name), HandlerRegistry())

    def queue(self, name: str | None = None, protocol: str | None = None) -> Queue:
        """Return a queue by its name; without one, the protocol's default queue."""
        chosen = self._default_protocol if protocol is None else protocol_named(protocol)
        name = chosen.spec.default_queue if name is None else name
        # a name may be anything until it was checked
        queue = self._queues.get((chosen.spec.name, name)) if isinstance(name, str) else None
        if queue is None:
            queue = self._queues[chosen.spec.name, name] = Queue(self, chosen, name)
        return queue

    async def queues(self, protocol: str | None = None) -> list[Queue]:
        """Return the queues of a protocol."""
        chosen = self._default_protocol if protocol is None else protocol_named(protocol)
        if is_cluster(self._url) and not (chosen.spec.tags_queues or has_tag(self.namespace(chosen))):
            return []  # none can exist there
        names = await chosen.queues(self.store(), self.namespace(chosen))
        return [Queue(self, chosen, name, is_read=True) for name in names]

    async def gauges(self) -> list[Gauge]:
        """Return the metrics that the protocols with a handler here define about themselves."""
        gauges: list[Gauge] = []
        for name in sorted({protocol for protocol, _ in self._registries}):
            gauges += await self.queue(protocol=name).ports.inspector.gauges()
        return gauges

    def clock(self) -> int:
        """Return the milliseconds since the epoch."""
        return self._clock()

    async def check_clock(self, store: Store | None = None) -> bool:
        """Compare this machine's clock with the server's, unless that was done within the last minute.

        Return whether it was done. A clock that was given is taken as it is.
        """
        if not (isinstance(self._clock, ServerClock) and self._clock.is_outdated):
            return False
        await (store or self._store).compare_clocks(self._clock)
        return True

    # -- for workers ------------------------------------------------------------------------------------

    def workers(
        self,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        name: str | None = None,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        protocol: str | None = None,
        listener: Listener | None = None,
        reconnect: Reconnect | None = None,
        **options: Unpack[ProfileOptions],
    ) -> "list[Worker]":
        """Return a worker for each queue that has a handler; `queues` and `protocol` select queues.

        `queues` may also be a mapping of queues to their own concurrency: `{"orders": 50, "mail": 5}`.
        """
        check_names(options, ("concurrency",))
        served = None if protocol is None else protocol_named(protocol).spec.name
        known = sorted({queue for where, queue in self._registries if served in (None, where)})
        slots = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues or (), concurrency)
        if is_cluster(self._url):
            slots = {name if name in known else f"{{{name}}}": count for name, count in slots.items()}
        unknown = [queue for queue in slots if queue not in known]
        if unknown or not known:
            which = f"queue {unknown[0]!r}" if unknown else "any queue"
            if served is not None:
                which += f" of protocol {served!r}"
            raise InvalidOptions(f"no handler for {which}; there are some for: {', '.join(known) or 'none'}")
        selected = {
            (where, queue): registry
            for (where, queue), registry in self._registries.items()
            if served in (None, where) and (not slots or queue in slots)
        }
        reconnect = reconnect or Reconnect()
        identity = [part for part in IDENTITY if part in options]
        able = names_with(Capability.ROUTING)
        if identity and not any(where in able for where, _ in selected):
            raise InvalidOptions(
                f"{identity[0]} is for protocols that route jobs, and no handler is in one; "
                f"leave it out, or give a handler such a protocol: @app.job(…, protocol={able[0]!r})"
            )
        open_resources = SharedLifespan(self.lifespan)
        listeners = [*self.listeners, *([] if listener is None else [listener])]
        who = profile_of(name, options, self._defaults)
        most_processes = processes_of(options)
        kinds = {handler.kind for registry in selected.values() for handler in registry.all}
        processes = None
        if HandlerKind.PROCESS in kinds:
            from corral.worker.processes.pool import ProcessPool

            processes = ProcessPool(most_processes)
        return [
            self._worker(
                protocol_named(where),
                queue,
                registry,
                who,
                reconnect,
                concurrency=slots.get(queue, concurrency),
                listener=to_each(listeners),
                open_resources=open_resources,
                heartbeat_s=heartbeat_of(options, who.lock_ms),
                processes=processes,
            )
            for (where, queue), registry in selected.items()
        ]

    async def run(
        self,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        grace: float | timedelta = GRACE_S,
        burst: bool = False,
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Work until a signal comes (or this is cancelled): `concurrency` jobs at a time in each queue.

        The first SIGINT or SIGTERM stops claiming and lets running jobs end within `grace` seconds; what is
        left then is given back. The second ends at once. With `burst` it also ends when no job is waiting or
        running; delayed jobs, retries among them, stay.
        """
        _check_not_imported()
        check_names(options, ("concurrency", "grace", "burst"))
        self._running = workers = self.workers(concurrency=concurrency, **options)
        with Signals(seconds(grace)) as signals:
            await self.durability.check(self.queue())
            await self.start_schedules()
            queues = {worker: self.queue(worker.queue, worker.config.protocol) for worker in workers}
            backlogs = {worker: backlog_of(queue) for worker, queue in queues.items()} if burst else None
            try:
                await serve_all(workers, signals, backlogs)
            finally:
                self._running = []

    async def run_until_idle(self, *, through: timedelta | None = None) -> int:
        """Run what is due, in this process, and return how many attempts were made: for tests.

        Queue after queue, one job at a time, until there is nothing left that is due. With `through`, time
        passes as well: the clock (`testing.Clock`) is moved to each due time within it, so that delayed jobs,
        retries and schedules run without waiting.

        >>> await app.run_until_idle(through=timedelta(hours=1))   # doctest: +SKIP
        """
        await self.start_schedules()
        return await run_until_idle(self, self._clock, through)

    @contextmanager
    def replaced(self, *, url: str, clock: Callable[[], int] | None = None) -> Iterator[None]:
        """Use another server, and another clock, for a while: for tests."""
        before = self._url, self._clock
        self._store.reset()
        self._results.clear()
        self.durability.reset()
        self._url, self._clock = url, clock or self._clock
        try:
            yield
        finally:
            self._store.reset()
            self._results.clear()
            self.durability.reset()
            self._url, self._clock = before

    @property
    def metrics(self) -> "Metrics":
        """The metrics of this app's workers."""
        if self._metrics is None:
            from corral.telemetry.metrics import Metrics

            self._metrics = Metrics()
        return self._metrics

    @property
    def is_ready(self) -> bool:
        """Whether `run` is under way, with every worker claiming jobs and Redis replying."""
        return bool(self._running) and all(worker.is_ready for worker in self._running)

    async def start_schedules(self) -> dict[str, str]:
        """Write every declared schedule, as `run` does; return id -> "added", "changed" or "kept"."""
        if not self._schedules:
            return {}
        store = Store(self.url)
        try:
            await store.check_connection()
            await self.check_clock(store)
            answers = {
                scheduled.id: await scheduled.start(self._bind(scheduled.queue, store).schedules)
                for scheduled in self._schedules.values()
            }
            await self._note_schedules(store)
            return answers
        finally:
            await store.close()

    async def _note_schedules(self, store: Store) -> None:
        """Note which schedules were declared, so that those that no longer are can be found."""
        from corral.protocols.records import QueueRecords

        scheduled = self._schedules.values()
        queues = {(each.queue.protocol.spec.name, each.queue.name): each.queue for each in scheduled}
        for (protocol, _), queue in queues.items():
            inspector = self._bind(queue, store).inspector
            records = QueueRecords(replace(self.binding(queue), store=store), protocol, inspector)
            with suppress(RedisResponseError):  # a user that may write the protocol's own keys only
                await records.declare_schedules(self.schedule_ids(queue))

    def schedule_ids(self, queue: Queue) -> list[str]:
        """Return the ids of the schedules of a queue that this app declares."""
        where = queue.protocol.spec.name, queue.name
        return [
            scheduled.id
            for scheduled in self._schedules.values()
            if (scheduled.queue.protocol.spec.name, scheduled.queue.name) == where
        ]

    def _worker(
        self,
        protocol: Protocol,
        queue: str,
        registry: HandlerRegistry,
        who: Profile,
        reconnect: Reconnect,
        **options: Any,
    ) -> "Worker":
        from corral.worker.worker import Worker

        if who.promote_ms is None:
            who = msgspec.structs.replace(who, promote_ms=protocol.spec.promote_ms)
        names = registry.names
        who = msgspec.structs.replace(who, serves=None if ANY_NAME in names else tuple(names))
        config = WorkerConfig(
            protocol=protocol.spec.name,
            queue=queue,
            handlers=self._with_middleware(protocol, queue, registry),
            open_connections=self._connections(protocol, queue, who),
            profile=who,
            delays=reconnect.delay,
            max_tries=reconnect.max_tries,
            policy=self.policy,
            schedules=self.schedule_ids(self.queue(queue, protocol.spec.name)),
            clock=self._clock,
            metrics=self.metrics.queue(protocol.spec.name, queue, protocol.spec.metric_names),
            has_delays=Capability.DELAY in protocol.spec.capabilities,
            **options,
        )
        return Worker(config)

    def _with_middleware(self, protocol: Protocol, queue: str, registry: HandlerRegistry) -> HandlerRegistry:
        """Return the handlers with the middleware around them; without any, the handlers themselves."""
        if not self.middlewares:
            return registry
        types, where = self.job_types, (protocol.spec.name, queue)
        return registry.replaced(lambda handler: types[*where, handler.name].handler_with(self.middlewares))

    def _connections(self, protocol: Protocol, queue: str, who: Profile) -> Any:
        @asynccontextmanager
        async def open_connections() -> AsyncIterator[Connections]:
            store = Store(self.url)
            from corral.protocols.limits import QueueStartLimiter
            from corral.protocols.records import QueueRecords

            generation = self.generation(protocol)
            binding = Binding(store, queue, self.namespace(protocol), self.clock, who, generation)
            ports = protocol.bind(binding)
            try:
                await store.check_connection()
                await self.check_clock(store)
                if (count := who.extra.get("max_events")) is not None:
                    await ports.operator.keep_events(count)
                yield Connections(
                    ports.broker,
                    ports.reporter,
                    QueueRecords(binding, protocol.spec.name, ports.inspector),
                    QueueStartLimiter(binding, protocol.spec.name),
                    lambda: self.check_clock(store),
                )
            finally:
                with suppress(ConnectionError):
                    await ports.broker.close()
                await store.close()

        return open_connections

    # -- connections ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The server's address; the first use starts the private server where there is no other."""
        if self._url is not None:
            return self._url
        if self._embedded is None:
            _check_private_server()
            self._embedded = EmbeddedServer(self._folder).start()
        return self._embedded.url

    @property
    def is_private(self) -> bool:
        """Whether the server is the private one, because no address was given."""
        return self._url is None

    def namespace(self, protocol: Protocol) -> str:
        """Return what the keys of a protocol begin with."""
        return self._namespaces.get(protocol.spec.name, protocol.spec.default_namespace)

    def generation(self, protocol: Protocol) -> int | None:
        """Return the generation that the queues of a protocol must be of; None: each its own."""
        return self._generations.get(protocol.spec.name)

    def queue_name(self, protocol: Protocol, name: str) -> str:
        """Return a queue's name on the wire: in a cluster `mail` is `{mail}`, whose keys share a slot."""
        return in_one_slot(protocol, self.namespace(protocol), name) if is_cluster(self._url) else name

    def store(self) -> Store:
        """Return the connections of the running event loop."""
        return self._store.current()

    def binding(self, queue: Queue) -> Binding:
        """Return the binding of a queue, for whichever event loop uses it."""
        protocol = queue.protocol
        return Binding(
            self._store,
            queue.name,
            self.namespace(protocol),
            self.clock,
            generation=self.generation(protocol),
        )

    def _bind(self, queue: Queue, store: Store) -> Ports:
        return queue.protocol.bind(replace(self.binding(queue), store=store))

    def results(self, queue: Queue) -> ResultListener:
        """Return what waits for the ends of a queue's jobs, in the running event loop."""
        listeners = self._results.setdefault(asyncio.get_running_loop(), {})
        where = queue.protocol.spec.name, queue.name
        if where not in listeners:
            listeners[where] = ResultListener(queue)
        return listeners[where]

    async def close(self) -> None:
        """Close this event loop's connections, and release the private server."""
        for listener in self._results.pop(asyncio.get_running_loop(), {}).values():
            await listener.close()
        await self.durability.close()
        await self._store.close()
        if self._embedded is not None:
            self._embedded.close()
            self._embedded = None

    async def __aenter__(self) -> Self:
        await self.durability.check(self.queue())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _check_private_server() -> None:
    """Refuse to start the private server where the environment forbids it, or seems to name another."""
    if os.environ.get(REQUIRE_REDIS, "0") not in ("", "0"):
        raise InvalidOptions(
            f"there is no Redis address, and {REQUIRE_REDIS} forbids a private server; set REDIS_URL"
        )
    for name in MISTAKEN_NAMES:
        if os.environ.get(name):
            logger("app").warning(f"{name} is set but not read: the variable is REDIS_URL")


def _check_not_imported() -> None:
    """Refuse to run in a process spawned for a handler, which imports the program first."""
    import multiprocessing

    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidOptions(
            "this program is being imported by a process that should run one handler of it; "
            "put app.run(…) under `if __name__ == '__main__':`"
        )
