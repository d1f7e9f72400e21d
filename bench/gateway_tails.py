"""Thousands of tails on one gateway: does every reader get every event, in order, and how soon.

`python -m bench.gateway_tails [--jobs 1000] [--readers 5] [--rate 500] [--seconds 20]`

Events are written as Corral's own parts write them: to the job's stream and, as a hint, to `jobs:events`.
The clock starts before an event is sent to the server and stops when a reader's socket has it.
"""

import argparse
import asyncio
import json
import resource
import time
from dataclasses import dataclass, field
from typing import Any

from bench.gateway import serving
from corral import Corral
from corral.store.client import Store
from corral.store.embedded import EmbeddedServer

GATEWAY = """
import uvicorn, os
from corral.gateway import GatewaySettings, create_app
from corral.gateway.server import configure

settings = GatewaySettings(
    redis_url=os.environ["REDIS_URL"], tails_per_client=100_000, max_tails=100_000, max_backlog=10_000_000
)
uvicorn.Server(configure(create_app(settings), settings, int(os.environ["PORT"]))).run()
"""

TELL = """
local now = ARGV[1]
redis.call("XADD", KEYS[1], "*", "type", "progress", "ts", now, "step", "bench", "data", ARGV[2])
redis.call("XADD", KEYS[2], "MAXLEN", "~", 10000, "*", "type", "progress", "ts", now, "step", "bench",
           "data", ARGV[2], "job_id", ARGV[3], "task", "embed")
return 1
"""


@dataclass
class Reader:
    """One tail: the numbers it received, and how long each took."""

    job: int
    numbers: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class Tailing(asyncio.Protocol):
    """The least a reader can be: bytes in, numbers out."""

    def __init__(self, reader: Reader, path: str, greeted: "asyncio.Future[None]") -> None:
        self._reader = reader
        self._path = path
        self._greeted = greeted
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b'data: {"type":"progress"'):
                payload = json.loads(line[6:])["data"]
                self._reader.numbers.append(payload["n"])
                self._reader.seconds.append(now - payload["at"])
            elif line == b"event: queued" and not self._greeted.done():
                self._greeted.set_result(None)


async def measure(port: int, redis_url: str, arguments: argparse.Namespace) -> list[Reader]:
    """Open the tails, tell the events, and wait until all have come."""
    store = Store(redis_url)
    async with Corral(redis_url, protocol="streams") as app:
        ids = await app.queue().add_many(
            [("embed", {"n": n}, {"ttl_s": 3600}) for n in range(arguments.jobs)]
        )
    readers = [Reader(job) for job in range(arguments.jobs) for _ in range(arguments.readers)]
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    for start in range(0, len(readers), 100):
        batch = readers[start : start + 100]
        greeted = [loop.create_future() for _ in batch]
        for reader, greeting in zip(batch, greeted, strict=True):
            path = f"/v1/jobs/{ids[reader.job]}/events"
            await loop.create_connection(
                lambda r=reader, p=path, g=greeting: Tailing(r, p, g), "127.0.0.1", port
            )
        await asyncio.gather(*greeted)
    print(f"{len(readers):,} tails open after {time.perf_counter() - began:.1f} s", flush=True)
    count = await _emit(store, ids, arguments)
    deadline = time.perf_counter() + 30
    while sum(len(reader.numbers) for reader in readers) < count * arguments.readers:
        if time.perf_counter() > deadline:
            break
        await asyncio.sleep(0.05)
    await store.close()
    return readers


async def _emit(store: Store, ids: list[str], arguments: argparse.Namespace) -> int:
    """Tell events at an even rate, one job after the other; how many."""
    count = int(arguments.rate * arguments.seconds)
    began = time.perf_counter()
    calls = []
    for number in range(count):
        due = began + number / arguments.rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        job_id = ids[number % len(ids)]
        data = json.dumps({"n": number // len(ids), "at": time.perf_counter()})
        now = str(int(time.time() * 1000))
        keys = (f"job:{job_id}:events", "jobs:events")
        calls.append(asyncio.ensure_future(store.call("EVAL", TELL, 2, *keys, now, data, job_id)))
        if len(calls) >= 500:
            await asyncio.gather(*calls)
            calls.clear()
    await asyncio.gather(*calls)
    return count


def report(readers: list[Reader], arguments: argparse.Namespace) -> bool:
    """Print how it went, and return whether every reader got every event, in order."""
    count = int(arguments.rate * arguments.seconds)
    wanted = [len(range(job, count, arguments.jobs)) for job in range(arguments.jobs)]
    is_whole = all(reader.numbers == list(range(wanted[reader.job])) for reader in readers)
    seconds = sorted(second for reader in readers for second in reader.seconds)
    shares = {share: seconds[min(int(len(seconds) * share), len(seconds) - 1)] for share in (0.5, 0.95, 0.99)}
    print(f"{len(seconds):,} events received; every event to every reader, in order: {is_whole}")
    print(", ".join(f"p{share * 100:.0f} {value * 1000:.0f} ms" for share, value in shares.items())
          + f", most {seconds[-1] * 1000:.0f} ms   (goal: p99 < 250 ms)")  # fmt: skip
    return is_whole and shares[0.99] < 0.25


def main() -> None:
    """Measure one gateway process."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_tails")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--readers", type=int, default=5)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    needed = arguments.jobs * arguments.readers + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))
    with EmbeddedServer(temporary=True) as redis, serving(GATEWAY, redis.url) as port:
        readers = asyncio.run(measure(port, redis.url, arguments))
    used, own = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    print(f"cpu: gateway {used.ru_utime + used.ru_stime:.1f} s, readers {own.ru_utime + own.ru_stime:.1f} s")
    raise SystemExit(0 if report(readers, arguments) else 1)


if __name__ == "__main__":
    main()
