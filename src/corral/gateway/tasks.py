"""Bulk changes of jobs that match a filter: they run in the gateway, and their progress is kept in Redis."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from secrets import token_hex
from time import monotonic

import orjson
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from corral.app import Corral
from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.errors import CorralError
from corral.protocols.base import Protocol
from corral.queue import Queue
from corral.store.client import Store

PAGE = 500
KEPT_S = 86_400
LOST_MS = 30_000
"""A running task without progress for so long has lost its gateway."""
MAX_ERRORS = 20
LISTED = 50
_INDEX = "corral:tasks"

VERBS: dict[str, tuple[Callable[[Queue, Sequence[str]], Awaitable[list[str]]], tuple[JobState, ...]]] = {
    "retry": (Queue.retry, (JobState.DEAD,)),
    "replay": (Queue.replay, (JobState.DEAD,)),
    "promote": (Queue.promote, (JobState.DELAYED,)),
    "remove": (Queue.remove, tuple(state for state in JobState if state is not JobState.ACTIVE)),
    "cancel": (Queue.cancel, (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE)),
}
"""Each verb, and the states it is about where the filter names none."""


class BulkTask(Struct, frozen=True, kw_only=True):
    """A bulk change and its progress."""

    id: str
    protocol: str
    queue: str
    verb: str
    query: str
    actor: str
    total: int
    started_at: int
    updated_at: int
    state: str = "running"
    scanned: int = 0
    done: int = 0
    not_done: int = 0
    errors: tuple[str, ...] = ()


class BulkTasks:
    """The bulk changes of all gateways of one server."""

    def __init__(self, corral: Corral) -> None:
        self._corral = corral
        self._running: set[asyncio.Task[None]] = set()

    @property
    def _store(self) -> Store:
        return self._corral.store()

    async def start(
        self, queue: Queue, verb: str, jobs: JobFilter, query: str, actor: str, per_second: float | None
    ) -> BulkTask:
        """Start a bulk change; return it."""
        now = self._corral.clock()
        task = BulkTask(
            id=token_hex(8), protocol=queue.protocol.spec.name, queue=queue.name, verb=verb, query=query,
            actor=actor, total=await _total(queue, verb, jobs), started_at=now, updated_at=now,
        )  # fmt: skip
        await self._write(task)
        await self._store.call("ZADD", _INDEX, now, task.id)
        await self._store.call("ZREMRANGEBYSCORE", _INDEX, "-inf", now - KEPT_S * 1000)
        running = asyncio.create_task(self._run(queue, task, jobs, per_second))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return task

    async def task(self, task_id: str) -> BulkTask | None:
        """Return one; None where it does not exist."""
        raw = await self._store.call("GET", _key(task_id))
        return None if raw is None else self._decode(raw)

    async def list(self) -> list[BulkTask]:
        """Return the latest."""
        ids = await self._store.call("ZREVRANGE", _INDEX, 0, LISTED - 1)
        tasks = [await self.task(task_id.decode()) for task_id in ids]
        return [task for task in tasks if task is not None]

    async def stop(self, task_id: str) -> BulkTask | None:
        """Ask a task to stop after its current page; return it."""
        task = await self.task(task_id)
        if task is not None and task.state == "running":
            await self._store.call("SET", _stop_key(task_id), 1, "EX", KEPT_S)
        return task

    async def close(self) -> None:
        """Stop the tasks of this process."""
        for running in self._running:
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _decode(self, raw: bytes) -> BulkTask:
        task = convert(orjson.loads(raw), BulkTask)
        is_lost = task.state == "running" and self._corral.clock() - task.updated_at > LOST_MS
        return replace(task, state="lost") if is_lost else task

    async def _write(self, task: BulkTask) -> None:
        await self._store.call("SET", _key(task.id), orjson.dumps(to_builtins(task)), "EX", KEPT_S)

    async def _run(self, queue: Queue, task: BulkTask, jobs: JobFilter, per_second: float | None) -> None:
        ended = "failed"
        try:
            async for progress in self._pages(queue, task, jobs, per_second):
                task = replace(progress, updated_at=self._corral.clock())
                await self._write(task)
                if await self._store.call("EXISTS", _stop_key(task.id)):
                    ended = "stopped"
                    return
            ended = "completed"
        except asyncio.CancelledError:
            ended = "stopped"
            raise
        except CorralError as error:
            task = replace(task, errors=(*task.errors, str(error))[-MAX_ERRORS:])
        finally:
            await self._write(replace(task, state=ended, updated_at=self._corral.clock()))

    async def _pages(
        self, queue: Queue, task: BulkTask, jobs: JobFilter, per_second: float | None
    ) -> AsyncIterator[BulkTask]:
        """Act page by page; yield the progress after each. No job is acted on twice."""
        act, usual = VERBS[task.verb]
        began, seen = monotonic(), set[str]()
        size = PAGE if per_second is None else max(min(int(per_second), PAGE), 1)
        for state in [state for state in JobState if state in (jobs.states or usual)]:
            cursor: str | None = ""
            while cursor is not None and (jobs.limit is None or task.done < jobs.limit):
                page = await queue.page(state, cursor, size)
                ids = [job.id for job in page.jobs if job.id not in seen and jobs.has(job)]
                if jobs.limit is not None:
                    ids = ids[: jobs.limit - task.done]
                seen.update(ids)
                done = await act(queue, ids) if ids else []
                task = replace(
                    task,
                    scanned=task.scanned + len(page.jobs),
                    done=task.done + len(done),
                    not_done=task.not_done + len(ids) - len(done),
                )
                yield task
                cursor = page.cursor
                if cursor is not None and per_second is not None:
                    await asyncio.sleep(max(began + task.done / per_second - monotonic(), 0))


async def _total(queue: Queue, verb: str, jobs: JobFilter) -> int:
    """Return how many jobs may have to be looked at."""
    counts = await queue.counts()
    return sum(counts.get(state, 0) for state in jobs.states or VERBS[verb][1])


def lacking(protocol: Protocol, verb: str) -> CorralError | None:
    """Return the error of a verb that a protocol has no word for."""
    lack = protocol.spec.lacks.get(verb)
    return None if lack is None else lack.error(protocol.spec.name)


def _key(task_id: str) -> str:
    return f"corral:task:{task_id}"


def _stop_key(task_id: str) -> str:
    return f"corral:task:{task_id}:stop"
