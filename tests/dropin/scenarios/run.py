"""One run of a scenario by a pair of clients: its calls, what they returned, and what is left in Redis."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import redis

from tests.dropin.scenarios.clients import Client, Script
from tests.support.keyspace import Keyspace, look
from tests.support.node import NodeError
from tests.support.polling import until

LISTS = ("wait", "active", "paused")
SETS = ("completed", "failed", "delayed", "prioritized", "waiting-children")
SECONDS = 30.0
"""How long a run may wait for a state, however busy the machine is."""


@dataclass(frozen=True)
class Result:
    """What a run returned, told and left behind."""

    answers: list[Any]
    told: list[Any]
    keyspaces: dict[str, Keyspace]
    begin: int
    end: int


@dataclass
class Run:
    """A queue with a producer and a worker, each of one of the clients.

    `await run.add("send", {"n": 1}, delay=20)`, `await run.queue("getJobCounts")` and
    `await run.job("1", "getState")` call the producer; `await run.works(script)` starts a worker that runs a
    script, `await run.takes()` lets one claim a job by hand. What calls return is recorded and compared.
    """

    name: str
    prefix: str
    producer: Client
    worker: Client
    redis: redis.Redis
    answers: list[Any] = field(default_factory=list)
    token: str = "token-1"
    queues: list[str] = field(default_factory=list)
    _opened: list[tuple[Client, str]] = field(default_factory=list)
    _running: list[tuple[Client, str]] = field(default_factory=list)

    async def _open(self, client: Client, handle: str, kind: str, name: str, **how: Any) -> None:
        if (client, handle) in self._opened:
            return
        self._opened.append((client, handle))
        await client.open(handle, kind, name, how.pop("opts", {}), **how)
        if name and name not in self.queues:
            self.queues.append(name)

    async def _record(self, what: str, answer: Awaitable[Any]) -> Any:
        try:
            value = await answer
        except (Exception, NodeError) as error:
            self.answers.append([what, "raises", getattr(error, "code", None), str(error)])
            return None
        self.answers.append([what, value])
        return value

    # -- the producer ---------------------------------------------------------------------------------------

    async def open_queue(self, queue: str | None = None, **opts: Any) -> str:
        """Open the producer's Queue, if it is not open; return its handle."""
        name = queue or self.name
        handle = f"queue {name}"
        await self._open(self.producer, handle, "Queue", name, opts=opts)
        return handle

    async def add(self, job: str, data: Any = None, /, **opts: Any) -> Any:
        """Add a job to the queue."""
        return await self.queue("add", job, {} if data is None else data, opts)

    async def queue(self, method: str, *args: Any, of: str | None = None) -> Any:
        """Call a method of the producer's Queue."""
        return await self._record(
            method, self.producer.call(await self.open_queue(of), method, args, self.token)
        )

    async def job(self, job_id: str, method: str, *args: Any, of: str | None = None) -> Any:
        """Call a method of a job, as the producer has added or read it."""
        return await self._record(
            method, self.producer.call_job(await self.open_queue(of), job_id, method, args, self.token)
        )

    async def flows(self, method: str, *args: Any) -> Any:
        """Call a method of the producer's FlowProducer."""
        handle = f"flows {self.name}"
        await self._open(self.producer, handle, "FlowProducer", "")
        return await self._record(method, self.producer.call(handle, method, args, self.token))

    @property
    def _events(self) -> str:
        return f"events {self.name}"

    async def listens(self) -> None:
        """Record all events of the queue as the producer's QueueEvents tells them."""
        await self._open(self.producer, self._events, "QueueEvents", self.name)

    # -- the worker -----------------------------------------------------------------------------------------

    async def works(
        self, script: Script, /, of: str | None = None, strategy: int | str | None = None, **opts: Any
    ) -> None:
        """Start a worker that runs this script."""
        name = of or self.name
        queue, handle = f"worker's queue {name}", f"worker {name}"
        await self._open(self.worker, queue, "Queue", name)
        await self._open(
            self.worker, handle, "Worker", name, script=script, strategy=strategy, queue=queue,
            opts={"name": "anna", **opts},
        )  # fmt: skip
        self._running.append((self.worker, handle))

    async def takes(self, of: str | None = None, **opts: Any) -> Any:
        """Claim the next job by hand, under the token; return it."""
        handle = await self._by_hand(of, **opts)
        return await self._record(
            "getNextJob", self.worker.call(handle, "getNextJob", ["$token", {"block": False}], self.token)
        )

    async def taken(self, job_id: str, method: str, *args: Any, of: str | None = None) -> Any:
        """Call a method of a job that was claimed by hand."""
        return await self._record(
            method, self.worker.call_job(await self._by_hand(of), job_id, method, args, self.token)
        )

    async def _by_hand(self, of: str | None = None, **opts: Any) -> str:
        name = of or self.name
        handle = f"manual worker {name}"
        await self._open(self.worker, handle, "Worker", name, opts={"name": "anna", **opts})
        return handle

    async def stops_working(self, force: bool = False) -> None:
        """Close the running workers."""
        for client, handle in self._running:
            self.answers.append(["told", await client.told(handle)])
            await client.close(handle, force)
            self._opened.remove((client, handle))
        self._running.clear()

    # -- Redis ----------------------------------------------------------------------------------------------

    def _key(self, name: str, queue: str | None = None) -> str:
        return f"{self.prefix}:{queue or self.name}:{name}"

    def counts(self, queue: str | None = None) -> dict[str, int]:
        """The number of jobs in each state that has some."""
        with self.redis.pipeline(transaction=True) as pipe:
            for name in LISTS:
                pipe.llen(self._key(name, queue))
            for name in SETS:
                pipe.zcard(self._key(name, queue))
            numbers = pipe.execute()
        return {name: number for name, number in zip((*LISTS, *SETS), numbers, strict=True) if number}

    async def rests(self, of: str | None = None, is_limited: bool = False, **states: int) -> None:
        """Wait until just so many jobs are in these states, and the workers wait for more.

        `is_limited`: they wait for a rate limit to pass, and not for the marker.
        """
        expected = {name.replace("_", "-"): number for name, number in states.items() if number}
        seen: dict[str, int] = {}

        async def at_rest() -> bool:
            seen.clear()
            seen.update(self.counts(of))
            is_woken = self._running and not is_limited and self.redis.exists(self._key("marker", of))
            return seen == expected and not is_woken

        try:
            await until(at_rest, f"{self.prefix} {self.name}: {expected}", SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}, but {seen}") from None

    async def has(self, command: str, name: str, *args: Any, value: Any = None) -> None:
        """Wait until a command on one of the queue's keys answers this."""

        async def is_so() -> bool:
            answer = self.redis.execute_command(command, self._key(name), *args)  # type: ignore[no-untyped-call]
            return bool(answer == value if value is not None else answer)

        await until(is_so, f"{self.prefix} {self.name}: {command} {name} is {value!r}", SECONDS)

    def forget(self, name: str) -> None:
        """Delete a key, as its time to live would."""
        self.redis.delete(self._key(name))

    def plant(self, command: str, name: str, *args: Any) -> None:
        """Run one plain command on one of the queue's keys."""
        self.redis.execute_command(command, self._key(name), *args)  # type: ignore[no-untyped-call]

    # -- the whole ------------------------------------------------------------------------------------------

    async def result(self, scenario: Callable[["Run"], Awaitable[None]]) -> Result:
        """Run the scenario; return what it did."""
        begin = self.now()
        try:
            await scenario(self)
            spaces = look(self.redis, *(self._key("", name) for name in self.queues))
            told = [[handle, await client.told(handle)] for client, handle in self._running]
            if (self.producer, self._events) in self._opened:
                told.append(["events", await self._all_events(spaces[0])])
        finally:
            await asyncio.gather(
                *(client.close(handle, True) for client, handle in self._opened if "worker " in handle)
            )
            await asyncio.gather(
                *(client.close(handle, False) for client, handle in self._opened if "worker " not in handle)
            )
        keyspaces = dict(zip(self.queues, spaces, strict=True))
        for name, space in keyspaces.items():
            for key in space:
                self.redis.delete(self._key(key, name))
        return Result(self.answers, told, keyspaces, begin, self.now())

    async def _all_events(self, space: Keyspace) -> list[Any]:
        count = len(space["events"].value)

        async def heard() -> list[Any] | None:
            events = await self.producer.told(self._events)
            return events if len(events) >= count else None

        events: list[Any] = await until(heard, f"{self.name}: {count} events", SECONDS)
        return events

    def now(self) -> int:
        """The server's time in ms."""
        seconds, micros = self.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000
