"""Run workers together until a signal: the first stops them gracefully, the second at once."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

from corral.core.job import JobState
from corral.core.outcome import Unhandled
from corral.core.ports import RestReason
from corral.errors import InvalidOptions, RedisError
from corral.queue import Queue
from corral.telemetry.logs import logger
from corral.worker import Listener, WorkerEvent, WorkerEventKind

if TYPE_CHECKING:
    from corral.app import Corral
    from corral.worker.worker import Worker

LEFT_TO_OTHERS_S = 3.0
"""Jobs that wait while every worker has been idle for so long cannot be claimed by these workers."""
IDLE_CHECK_S = 0.05
"""How often a burst looks whether there is anything left to do."""
HELD_CHECK_S = 0.25
"""How often it looks while other workers hold jobs, or Redis is unavailable."""


class Signals:
    """While entered, the first signal stops the workers gracefully and the second at once."""

    def __init__(
        self, grace: float, numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
    ) -> None:
        self._grace = grace
        self._numbers = numbers
        self._came = 0
        self._starting: dict[Worker, asyncio.Task[None]] = {}
        self._working: list[Worker] = []
        self._stopping: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        # outside the main thread (or on Windows) signals are the caller's
        with suppress(ValueError, RuntimeError, NotImplementedError):
            for number in self._numbers:
                loop.add_signal_handler(number, self._signalled)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ValueError, RuntimeError, NotImplementedError):
            for number in self._numbers:
                loop.remove_signal_handler(number)

    async def serve(self, worker: "Worker") -> None:
        """Start the worker and run it; a signal that comes before it has started is kept for it."""
        task = asyncio.current_task()
        assert task is not None
        self._starting[worker] = task
        try:
            await worker.start()
        finally:
            del self._starting[worker]
        self._working.append(worker)
        if self._came:
            self._stop(worker)
        await worker.run()

    def stop(self) -> None:
        """Stop the workers gracefully, as the first signal does."""
        if not self._came:
            self._signalled()

    def _signalled(self) -> None:
        self._came += 1
        if self._came == 1:
            for worker in self._working:
                self._stop(worker)
            return
        for worker in self._working:
            worker.kill()
        for task in self._starting.values():
            task.cancel()

    def _stop(self, worker: "Worker") -> None:
        self._stopping.append(asyncio.ensure_future(worker.stop(self._grace)))


async def together(runs: "Mapping[Worker, asyncio.Task[None]]") -> None:
    """Wait for all workers; where one fails, stop the others and raise its error."""
    tasks = list(runs.values())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        failed = any(task.done() and not task.cancelled() and task.exception() for task in tasks)
        if failed:
            await asyncio.gather(*(worker.stop(0) for worker in runs), return_exceptions=True)
        for task in tasks:
            if not task.done():
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


class SharedLifespan:
    """An app's lifespan for several workers: entered for the first, left after the last.

    It is entered and left by one task of its own, as cancel scopes and task groups in it require.
    """

    def __init__(self, open_resources: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._open = open_resources
        self._lock = asyncio.Lock()
        self._users = 0
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None]
        self._resources: Any = None

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Any]:
        """Yield the resources."""
        async with self._lock:
            if self._users == 0:
                await self._enter()
            self._users += 1
        try:
            yield self._resources
        finally:
            async with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._leaving.set()
                    await self._task

    async def _enter(self) -> None:
        self._leaving.clear()
        entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(entered))
        await asyncio.wait((self._task, entered), return_when=asyncio.FIRST_COMPLETED)
        if not entered.done():
            await self._task  # raises what the lifespan raised
        self._resources = entered.result()

    async def _hold(self, entered: "asyncio.Future[Any]") -> None:
        async with self._open() as resources:
            entered.set_result(resources)
            await self._leaving.wait()


def to_each(listeners: Sequence[Listener]) -> Listener | None:
    """Return a listener that calls each of these, whatever the others raise; None for none."""
    if len(listeners) < 2:
        return listeners[0] if listeners else None

    def listen(event: WorkerEvent) -> None:
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                logger("worker").exception("a listener failed", about=event.kind.value)

    return listen


class Backlog(NamedTuple):
    """What is left to do in a queue."""

    waiting: int
    held: int = 0
    """Jobs that any worker holds: one that dies leaves them to the others, so these stay until then."""


CountBacklog = Callable[[], Awaitable[Backlog]]


def backlog_of(queue: Queue, *, with_held: bool = False) -> CountBacklog:
    """Return what counts the backlog of a queue."""

    async def count() -> Backlog:
        counts = await queue.counts()
        return Backlog(counts.get(JobState.WAITING, 0), counts.get(JobState.ACTIVE, 0) if with_held else 0)

    return count


async def serve_all(
    workers: "Sequence[Worker]", signals: Signals, backlogs: "Mapping[Worker, CountBacklog] | None" = None
) -> None:
    """Run these workers until a signal comes; with `backlogs`, also until nothing is left to do."""
    idle_check = None if backlogs is None else asyncio.create_task(stop_when_idle(backlogs, signals.stop))
    try:
        await together({worker: asyncio.create_task(signals.serve(worker)) for worker in workers})
    finally:
        if idle_check is not None:
            idle_check.cancel()


async def stop_when_idle(workers: "Mapping[Worker, CountBacklog]", stop: Callable[[], None]) -> None:
    """Call `stop` once no worker holds a job and no queue has waiting ones, but for paused queues.

    The values count the backlogs: a job that one worker ran may have added some to the queue of another,
    after that one found nothing to claim. Jobs that wait although every worker is idle for longer are for
    others.
    """
    busy_at = monotonic()
    while True:
        is_held = False
        if not all(is_idle(worker) for worker in workers):
            busy_at = monotonic()
        else:
            counts = [count for worker, count in workers.items() if is_idle(worker, (RestReason.DRAINED,))]
            try:
                backlogs = [await count() for count in counts]
            except RedisError:
                backlogs = [Backlog(0, 1)]  # unknown; the workers wait for Redis
            is_held = any(backlog.held for backlog in backlogs)
            has_waiting = any(backlog.waiting for backlog in backlogs)
            if is_held:
                busy_at = monotonic()
            is_left = monotonic() - busy_at > LEFT_TO_OTHERS_S
            if not is_held and (not has_waiting or is_left) and all(is_idle(worker) for worker in workers):
                stop()
                return
        await asyncio.sleep(HELD_CHECK_S if is_held else IDLE_CHECK_S)


def is_idle(
    worker: "Worker", reasons: Sequence[RestReason] = (RestReason.DRAINED, RestReason.PAUSED)
) -> bool:
    """Return whether the worker has nothing to do, for one of these reasons."""
    rest = worker.idle_rest
    return rest is not None and rest.reason in reasons


@runtime_checkable
class MovableClock(Protocol):
    """A clock for tests: `corral.testing.Clock`."""

    def __call__(self) -> int: ...

    def move_to(self, now_ms: int, /) -> None: ...


async def run_until_idle(app: "Corral", clock: Callable[[], int], through: timedelta | None) -> int:
    """Run what is due, queue after queue and one job at a time; return how many attempts were made.

    With `through`, the clock is moved from one due time to the next, until that much time has passed.
    """
    lifespan = app.lifespan
    shared = SharedLifespan(lifespan)
    async with shared():
        # many workers come and go: all of them have the resources of one
        app.lifespan = shared
        try:
            return (await _run_due(app))[0] if through is None else await _run_through(app, clock, through)
        finally:
            app.lifespan = lifespan


async def _run_through(app: "Corral", clock: Callable[[], int], through: timedelta) -> int:
    if not isinstance(clock, MovableClock):
        raise InvalidOptions(
            "through=… moves the clock, and this app's cannot be moved; use Corral(clock=testing.Clock()), "
            "or the fixture corral_app"
        )
    end = clock() + through // timedelta(milliseconds=1)
    count, due = await _run_due(app)
    while due is not None and due <= end:
        clock.move_to(max(due, clock() + 1))
        attempts, due = await _run_due(app)
        count += attempts
    clock.move_to(end)
    return count


async def _run_due(app: "Corral") -> tuple[int, int | None]:
    """Return how many attempts were made, and when more will be due (ms since the epoch)."""
    total = settled = 0

    def count(event: WorkerEvent) -> None:
        nonlocal settled
        settled += event.kind is WorkerEventKind.SETTLED and not isinstance(event.outcome, Unhandled)

    while True:
        settled = 0
        due_times: list[int] = []
        for worker in app.workers(concurrency=1, listener=count):
            if worker.config.processes is not None:
                worker.config.processes.is_lazy = True  # most of these workers find no job
            due_times += await _serve(worker, app.queue(worker.queue, worker.config.protocol))
        total += settled
        if not settled:
            return total, min(due_times, default=None)


async def _serve(worker: "Worker", queue: Queue) -> list[int]:
    """Run a worker until its queue has nothing more for it; return when it will have."""
    await worker.start()
    running = asyncio.create_task(worker.run())
    try:
        while not running.done() and not is_idle(worker):
            await asyncio.wait([running], timeout=IDLE_CHECK_S / 10)
        rest = worker.idle_rest
    finally:
        await worker.stop()
        await running
    due_times = [] if rest is None or rest.until is None else [rest.until]
    if queue.ports.schedules is not None:
        schedules = await queue.ports.schedules.list()
        due_times += [schedule.next_at for schedule in schedules if schedule.next_at is not None]
    return due_times


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes event loops of uvloop, where that is installed; None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
