"""POST /v1/jobs beside a bare FastAPI route with the same body model and one Redis call, in one run.

`python -m bench.gateway [--seconds S] [--rounds N]`
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from corral.store.embedded import EmbeddedServer

CONNECTIONS = 16
BODY = b'{"task": "embed", "payload": {"text": "' + b"x" * 150 + b'", "n": 1}, "ttl_s": 600}'
HEAD = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
REQUEST = HEAD % len(BODY) + BODY

BARE = """
import os, uvicorn
from contextlib import asynccontextmanager
from fastapi import FastAPI
from corral.gateway.models import JobRequest
from corral.store.client import Store

@asynccontextmanager
async def lifespan(app):
    app.state.store = Store(os.environ["REDIS_URL"])
    yield
    await app.state.store.close()

app = FastAPI(lifespan=lifespan)

@app.post("/v1/jobs", status_code=202)
async def create(job: JobRequest):
    entry = await app.state.store.call("XADD", "bare", "MAXLEN", "~", 1000, "*", "payload", str(job.payload))
    return {"id": entry.decode(), "status": "queued"}

uvicorn.run(app, port=int(os.environ["PORT"]), log_level="warning", access_log=False)
"""

GATEWAY = """
import os, uvicorn
from corral.gateway import GatewaySettings, create_app
from corral.gateway.server import configure

settings = GatewaySettings(redis_url=os.environ["REDIS_URL"], max_backlog=10_000_000)
uvicorn.Server(configure(create_app(settings), settings, int(os.environ["PORT"]))).run()
"""


@contextmanager
def serving(program: str, redis_url: str) -> Iterator[int]:
    """A server process, once it listens; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    environment = {**os.environ, "REDIS_URL": redis_url, "PORT": str(port)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(20)


async def rate(port: int, seconds: float) -> float:
    """Accepted requests in a second, over connections that are kept open."""
    end = time.perf_counter() + seconds
    counts = await asyncio.gather(*(_ask(port, end) for _ in range(CONNECTIONS)))
    return sum(counts) / seconds


async def _ask(port: int, end: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    try:
        while time.perf_counter() < end:
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 202"):
                raise RuntimeError(f"refused: {head.decode(errors='replace')}")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            count += 1
    finally:
        writer.close()
    return count


def main() -> None:
    """Measure both in short turns, so that whatever else the machine does meets both, turn by turn."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one turn")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    bare: list[float] = []
    ours: list[float] = []
    with (
        EmbeddedServer(temporary=True) as redis,
        serving(BARE, redis.url) as bare_port,
        serving(GATEWAY, redis.url) as our_port,
    ):
        for port in (bare_port, our_port):
            asyncio.run(rate(port, 1.0))
        for _ in range(arguments.rounds):
            bare.append(asyncio.run(rate(bare_port, arguments.seconds)))
            ours.append(asyncio.run(rate(our_port, arguments.seconds)))
    for name, found in (("bare FastAPI", bare), ("gateway", ours)):
        median = statistics.median(found)
        print(f"{name:<14}{median:>9,.0f} POST/s   from {min(found):,.0f} to {max(found):,.0f}")
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    median = statistics.median(ratios)
    print(f"gateway / bare {median:>8.0%}   (median of {len(ratios)} turns; goal: 60 %)")


if __name__ == "__main__":
    main()
