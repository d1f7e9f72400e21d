"""The two clients that take part in a scenario, Node's BullMQ and the drop-in, behind the same calls.

Arguments and processors are data, with these words in them: `"$token"`, `"$job"` (the running job as a
parent), `{"$in": ms}` (a moment from now), `{"$error": message}` and `{"$unrecoverable": message}`. A
processor's script is `{job's name: [steps of its first start, of its second, …]}`, the last ones repeated; a
step is a verb with its arguments: return, fail, throw, sleep, read, job, job?, worker, queue.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import corral.bullmq as dropin
from tests.support.node import Node

Script = Mapping[str, Sequence[Sequence[Sequence[Any]]]]
FIELDS = (
    "id", "name", "data", "opts", "progress", "returnvalue", "failedReason", "attemptsMade",
    "attemptsStarted", "stalledCounter", "delay", "priority", "timestamp", "processedOn", "finishedOn",
    "parentKey", "deduplicationId", "repeatJobKey", "processedBy", "deferredFailure",
)  # fmt: skip
EVENTS = ("active", "completed", "failed", "progress", "stalled", "error")


class Client(Protocol):
    """What a scenario asks of either client; objects are known by handles."""

    async def open(
        self, handle: str, kind: str, name: str, opts: Mapping[str, Any], script: Script | None = None,
        strategy: int | str | None = None, queue: str | None = None,
    ) -> None: ...  # fmt: skip

    async def call(self, handle: str, method: str, args: Sequence[Any], token: str) -> Any: ...

    async def call_job(
        self, handle: str, job_id: str, method: str, args: Sequence[Any], token: str
    ) -> Any: ...

    async def told(self, handle: str) -> list[Any]: ...

    async def close(self, handle: str, force: bool) -> None: ...


class NodeClient:
    """Objects of Node's BullMQ, in the driver's process."""

    def __init__(self, node: Node, url: str, prefix: str) -> None:
        self._node, self._url, self._prefix = node, url, prefix

    async def open(
        self, handle: str, kind: str, name: str, opts: Mapping[str, Any], script: Script | None = None,
        strategy: int | str | None = None, queue: str | None = None,
    ) -> None:  # fmt: skip
        await self._node(
            "openScenario", handle=f"{self._prefix}/{handle}", kind=kind, name=name, prefix=self._prefix,
            url=self._url, opts=dict(opts), script=script, strategy=strategy,
            queue=queue and f"{self._prefix}/{queue}",
        )  # fmt: skip

    async def call(self, handle: str, method: str, args: Sequence[Any], token: str) -> Any:
        return await self._node(
            "callScenario", handle=f"{self._prefix}/{handle}", method=method, args=list(args), token=token
        )

    async def call_job(self, handle: str, job_id: str, method: str, args: Sequence[Any], token: str) -> Any:
        return await self._node(
            "callScenarioJob", handle=f"{self._prefix}/{handle}", id=job_id, method=method, args=list(args),
            token=token,
        )  # fmt: skip

    async def told(self, handle: str) -> list[Any]:
        told: list[Any] = await self._node("toldScenario", handle=f"{self._prefix}/{handle}")
        return told

    async def close(self, handle: str, force: bool) -> None:
        await self._node("close", handle=f"{self._prefix}/{handle}", force=force)


class DropInClient:
    """Objects of `corral.bullmq`, in this process; `opts` are those that all of them have."""

    def __init__(self, url: str, prefix: str, opts: Mapping[str, Any] | None = None) -> None:
        self._opts = {**(opts or {}), "connection": url, "prefix": prefix}
        self._objects: dict[str, Any] = {}
        self._jobs: dict[tuple[str, str], dropin.Job] = {}
        self._told: dict[str, list[Any]] = {}

    async def open(
        self, handle: str, kind: str, name: str, opts: Mapping[str, Any], script: Script | None = None,
        strategy: int | str | None = None, queue: str | None = None,
    ) -> None:  # fmt: skip
        options: Any = {**self._opts, **opts}
        told: list[Any] = []
        if strategy is not None:
            options["settings"] = {"backoffStrategy": _strategy(strategy)}
        if kind == "Queue":
            self._objects[handle] = dropin.Queue(name, options)
        elif kind == "FlowProducer":
            self._objects[handle] = dropin.FlowProducer(options)
        elif kind == "QueueEvents":
            events = dropin.QueueEvents(name, {"lastEventId": "0-0", **options})
            self._objects[handle] = events
            _listen_to_all(events, told)
        else:
            processor = None if script is None else self._processor(handle, script, queue)
            worker = dropin.Worker(name, processor, options)
            self._objects[handle] = worker
            for event in EVENTS:
                worker.on(event, lambda *args, event=event: told.append(_worker_event(event, args)))
        self._told[handle] = told

    def _processor(self, handle: str, script: Script, queue: str | None) -> Any:
        async def work(job: dropin.Job, token: str) -> Any:
            starts = script.get(job.name, [[]])
            for verb, *args in starts[min(job.attemptsStarted, len(starts)) - 1]:
                first, *rest = _filled(args, job, token)
                match verb:
                    case "return":
                        return first
                    case "fail":
                        raise Exception(first)
                    case "throw":
                        raise getattr(dropin, first)(*rest)
                    case "sleep":
                        await asyncio.sleep(first / 1000)
                    case "read":
                        self._told[handle].append(["read", job.id, getattr(job, first)])
                    case "job":
                        answer = await getattr(job, first)(*rest)
                        self._told[handle].append([first, job.id, answer])
                    case "job?":
                        if not await getattr(job, first)(*rest):
                            return "nothing to wait for"
                    case "worker":
                        await getattr(self._objects[handle], first)(*rest)
                    case "queue":
                        assert queue is not None
                        await getattr(self._objects[queue], first)(*rest)
            return None

        return work

    async def call(self, handle: str, method: str, args: Sequence[Any], token: str) -> Any:
        arguments = _filled(args, None, token)
        if method == "upsertJobScheduler" and len(arguments) > 2:
            template = arguments.pop()
            arguments += [template.get(name) for name in ("name", "data", "opts")]
        return self._shown(handle, await getattr(self._objects[handle], method)(*arguments))

    async def call_job(self, handle: str, job_id: str, method: str, args: Sequence[Any], token: str) -> Any:
        job = self._jobs.get((handle, job_id)) or await dropin.Job.fromId(self._objects[handle], job_id)
        if job is None:
            raise Exception(f"job {job_id} is not there")
        return self._shown(handle, await getattr(job, method)(*_filled(args, job, token)))

    async def told(self, handle: str) -> list[Any]:
        return self._told[handle]

    async def close(self, handle: str, force: bool) -> None:
        opened = self._objects.pop(handle)
        await (opened.close(force) if isinstance(opened, dropin.Worker) else opened.close())

    def _shown(self, handle: str, value: Any) -> Any:
        if isinstance(value, dropin.Job):
            if isinstance(value.id, str):
                self._jobs[handle, value.id] = value
            return {name: getattr(value, name) for name in FIELDS} | {"traces": len(value.stacktrace)}
        if isinstance(value, dict):
            return {name: self._shown(handle, each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._shown(handle, each) for each in value]
        return value


def _strategy(strategy: int | str) -> Any:
    def backoff(made: int, kind: str, error: BaseException, job: Any) -> int:
        if isinstance(strategy, str):
            raise Exception("the strategy has failed")
        return strategy if strategy < 0 else made * strategy

    return backoff


def _listen_to_all(events: dropin.QueueEvents, told: list[Any]) -> None:
    emit = events.emit

    def record(event: str, *args: Any) -> Any:
        if ":" not in event and event != "error":
            told.append([event, args[0] if len(args) > 1 else None])
        return emit(event, *args)

    events.emit = record  # type: ignore[method-assign]


def _worker_event(event: str, args: tuple[Any, ...]) -> list[Any]:
    first, second = (*args, None, None)[:2]
    if isinstance(first, BaseException):
        return [event, None, str(first)]
    if event == "stalled":
        return [event, first, None]
    if isinstance(second, BaseException):
        return [event, first and first.id, str(second)]
    return [event, first.id, None if event == "active" else second]


def _filled(value: Any, job: dropin.Job | None, token: str) -> Any:
    if value == "$token":
        return token
    if value == "$job":
        assert job is not None
        return {"id": job.id, "queue": job.queueQualifiedName}
    if isinstance(value, list | tuple):
        return [_filled(each, job, token) for each in value]
    if isinstance(value, dict):
        if "$in" in value:
            return int(time.time() * 1000) + value["$in"]
        if "$error" in value:
            return Exception(value["$error"])
        if "$unrecoverable" in value:
            return dropin.UnrecoverableError(value["$unrecoverable"])
        return {name: _filled(each, job, token) for name, each in value.items()}
    return value
