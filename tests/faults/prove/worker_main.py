"""A worker process of a run: its handlers do what each job's data says, and write down what happens."""

import asyncio
import signal
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import orjson

from corral.errors import RedisError, Transient, Unrecoverable
from corral.store.client import Reconnect
from corral.telemetry import logs
from corral.worker.context import BaseJobContext, JobContext, SyncJobContext
from corral.worker.worker import Worker
from tests.faults.checker import Writer, encode_value
from tests.faults.checker.records import Tick
from tests.faults.prove.queues import ASYNC, LOCK_MS, THREAD, RunQueue
from tests.faults.prove.recording import AttemptLog, receipt_text, recording
from tests.support.worker_process_main import go_with_parent

GRACE_S = 0.3


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What a worker process serves, and where it writes."""

    name: str
    url: str
    protocol: str
    run_queues: tuple[RunQueue, ...]
    folder: Path


def value_text(value: Any) -> str:
    """Return a result as the text by which the checker compares it: every number and the order of fields."""
    return encode_value(orjson.dumps(value))


def tick_of(job_id: str) -> float | None:
    """Return the nominal time in the id of a schedule's job: `repeat:ID:MS` or `ID@MS`."""
    number = job_id.rpartition("@")[2] if "@" in job_id else job_id.rpartition(":")[2]
    return float(number) if number != job_id and number.isdigit() else None


class Handlers:
    """The handlers of one run_queue."""

    def __init__(self, run_queue: RunQueue, history: Writer, worker: str) -> None:
        self.log = AttemptLog(history, run_queue.name, worker, LOCK_MS)
        self._lane, self._history = run_queue, history

    async def on_loop(self, job: JobContext) -> Any:
        self._begin(job)
        try:
            if job.data.get("reports"):
                await job.progress(50)
            await asyncio.sleep(job.data.get("ms", 1) / 1000)
            value = _work(job)
        except BaseException as error:
            self._raised(job, error)
            raise
        return self._returned(job, value)

    def in_thread(self, job: SyncJobContext) -> Any:
        self._begin(job)
        try:
            time.sleep(job.data.get("ms", 1) / 1000)
            value = _work(job)
        except BaseException as error:
            self._raised(job, error)
            raise
        return self._returned(job, value)

    def _begin(self, job: BaseJobContext) -> None:
        tick = tick_of(job.id)
        if tick is not None:
            schedule = job.id.removeprefix("repeat:")[: -len(f"{tick:.0f}") - 1]
            self._history.write(Tick(queue=self._lane.name, job=job.id, schedule=schedule, tick=tick))
        self.log.start(job)

    def _returned(self, job: BaseJobContext, value: Any) -> Any:
        # of two attempts of a job, the result says which one it is from
        result = {"value": value, "by": receipt_text(job.claim)}
        self.log.end(job.claim, "returned", value_text(result))
        return result

    def _raised(self, job: BaseJobContext, error: BaseException) -> None:
        is_cancelled = isinstance(error, asyncio.CancelledError)
        self.log.end(job.claim, "abandoned" if is_cancelled else "raised", error=repr(error)[:200])


def _work(job: BaseJobContext) -> Any:
    if job.data.get("dies"):
        raise Unrecoverable("as its data says")
    if job.attempt <= job.data.get("fails", 0):
        raise Transient(f"as its data says of attempt {job.attempt}")
    return job.data.get("value")


def make_worker(order: WorkerOrder, run_queue: RunQueue, history: Writer) -> Worker:
    """Return the worker of one run_queue."""
    handlers = Handlers(run_queue, history, order.name)
    app = run_queue.app(order.url, order.protocol)
    app.job(ASYNC, queue=run_queue.queue_name(order.protocol))(handlers.on_loop)
    app.job(THREAD, queue=run_queue.queue_name(order.protocol))(handlers.in_thread)
    [worker] = app.workers(
        name=order.name, reconnect=Reconnect(first_ms=20, most_ms=200), **run_queue.profile(order.protocol)
    )
    config = worker.config
    return Worker(
        msgspec.structs.replace(config, open_connections=recording(config.open_connections, handlers.log))
    )


async def _serve(order: WorkerOrder, ready: Event) -> None:
    with Writer.in_folder(order.folder, "worker") as history:
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        starting = (start(make_worker(order, run_queue, history)) for run_queue in order.run_queues)
        workers = await asyncio.gather(*starting)
        ready.set()
        await stopping.wait()
        await asyncio.gather(*(worker.stop(GRACE_S) for worker in workers))


async def start(worker: Worker) -> Worker:
    """Start the worker as soon as the server can be reached; return the one that started."""
    while True:
        try:
            await worker.start()
            return worker
        except RedisError:
            await asyncio.sleep(0.05)
            worker = Worker(worker.config)


def main(order: WorkerOrder, ready: Event) -> None:
    """Run until killed or told to stop."""
    Thread(target=go_with_parent, daemon=True).start()
    logs.configure(level="critical")
    asyncio.run(_serve(order, ready))
