"""Step: jobs added by HTTP, and the events of one of them followed over a connection that breaks."""

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from time import monotonic, sleep
from typing import Any

from corral.app import Corral
from corral.cli.demo.steps import DemoOutput, StepFailed, StepResult, expect, run_jobs

JOBS = 50
ANSWER = "The herd is home, the gate is shut, and every one of them was counted twice on the way in."
WORDS = ANSWER.split()
"""The events of the chat job."""
BREAK_AFTER = 8
"""Events read before the connection is closed."""
TIMEOUT_S = 20.0


async def jobs_by_http(url: str, output: DemoOutput) -> StepResult:
    """Add jobs at a gateway, follow the last of them, and compare its events with the expected ones."""
    async with Corral(url, protocol="streams") as app:

        @app.job("tool")
        async def use_tool(job: Any) -> dict[str, int]:
            await job.emit("used", {"number": job.data["number"]})
            await asyncio.sleep(0.01)  # a tool takes its time
            return {"number": job.data["number"]}

        @app.job("chat")
        async def answer(job: Any) -> dict[str, int]:
            for word in WORDS:
                await job.emit("word", {"text": word})
                await asyncio.sleep(0.01)
            return {"words": len(WORDS)}

        with gateway(url) as port:
            tail = EventTail(port)

            async def produce() -> None:
                ids = [await asyncio.to_thread(_post, port, number) for number in range(JOBS)]
                await asyncio.to_thread(tail.follow, ids[-1])

            tally = await run_jobs(
                app,
                "jobs by HTTP (protocol streams)",
                JOBS,
                produce,
                output,
                partial(app.workers, concurrency=10),
            )
    kinds = [kind for kind, _ in tail.events]
    expect("events of the chat job", kinds, ["queued", "running", *["event"] * len(WORDS), "done"])
    expect("duplicate events", len(tail.events) - len({event_id for _, event_id in tail.events}), 0)
    expect("broken connections", tail.breaks, 1)
    remark = (
        f"a chat job followed live: {len(kinds)} events over a broken connection, none missed, none twice"
    )
    return tally.result("jobs by HTTP", "streams", remark)


def _post(port: int, number: int) -> str:
    """Add a job, and return its id."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        task = "chat" if number == JOBS - 1 else "tool"
        body = json.dumps({"task": task, "payload": {"number": number}, "ttl_s": 600})
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"demo-{number}"}
        connection.request("POST", "/v1/jobs", body, headers)
        response = connection.getresponse()
        expect("status of POST /v1/jobs", response.status, 202)
        return str(json.loads(response.read())["job_id"])
    finally:
        connection.close()


@dataclass
class EventTail:
    """Reads a job's events; closes its connection once, and goes on after the last event it has seen."""

    port: int
    events: list[tuple[str, str]] = field(default_factory=list)
    """(type, id)"""
    breaks: int = 0

    def follow(self, job_id: str) -> None:
        """Read until the job's last event."""
        while not self.events or self.events[-1][0] not in ("done", "error", "canceled"):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
            headers = {"Last-Event-ID": self.events[-1][1]} if self.events else {}
            try:
                connection.request("GET", f"/v1/jobs/{job_id}/events", headers=headers)
                response = connection.getresponse()
                expect("status of GET /v1/jobs/{id}/events", response.status, 200)
                self._read(response)
            finally:
                connection.close()

    def _read(self, response: http.client.HTTPResponse) -> None:
        event_id = kind = ""
        for line in response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                event_id = value
            elif name == "event":
                kind = value
            elif name == "data" and event_id:
                self.events.append((kind, event_id))
                event_id = ""
                if len(self.events) == BREAK_AFTER and not self.breaks:
                    self.breaks += 1
                    return


@contextmanager
def gateway(url: str, lake: str | None = None) -> Iterator[int]:
    """Run a gateway in a thread; yield its port."""
    import uvicorn

    from corral.gateway import GatewaySettings, create_app
    from corral.gateway.server import configure

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    settings = GatewaySettings(redis_url=url, lake=lake)
    server = uvicorn.Server(configure(create_app(settings), settings, port, log_level="critical"))
    thread = Thread(target=server.run, name="demo-gateway", daemon=True)
    thread.start()
    try:
        deadline = monotonic() + TIMEOUT_S
        while not server.started:
            if not thread.is_alive() or monotonic() > deadline:
                raise StepFailed("the gateway does not start")
            sleep(0.01)
        yield port
    finally:
        server.should_exit = True
        thread.join(TIMEOUT_S)
