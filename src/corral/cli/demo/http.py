"""Jobs by HTTP: asked for at a gateway, and one of them tailed live through a broken line."""

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from time import monotonic, sleep
from typing import Any

from corral.app import Corral
from corral.cli.demo.stage import Broken, Report, Stage, expect, work_off

JOBS = 50
STEPS = 20
"""What the tailed job's handler tells."""
BROKEN_AFTER = 8
"""So many events are read before the line is broken."""
LONGEST_S = 20.0


async def jobs_by_http(url: str, stage: Stage) -> Report:
    """Ask for jobs at a gateway of our own, tail the last of them, and compare what came with what should."""
    async with Corral(url, room="streams") as app:

        @app.job("tool")
        async def write(job: Any) -> dict[str, int]:
            for number in range(STEPS if job.data["number"] == JOBS - 1 else 1):
                await job.emit("wrote", {"line": number})
                await asyncio.sleep(0.01)
            return {"number": job.data["number"]}

        with _gateway(url) as port:
            tail = _Tail(port)

            async def produce() -> None:
                ids = [await asyncio.to_thread(_ask, port, number) for number in range(JOBS)]
                await asyncio.to_thread(tail.follow, ids[-1])

            tally = await work_off(app, "jobs by HTTP (room streams)", JOBS, produce, stage, concurrency=10)
    kinds = [kind for kind, _ in tail.events]
    expect("events of the tailed job", kinds, ["queued", "running", *["event"] * STEPS, "done"])
    expect("events that came twice", len(tail.events) - len({event for _, event in tail.events}), 0)
    expect("times the line was broken", tail.breaks, 1)
    return Report(
        title="jobs by HTTP",
        room="streams",
        jobs=JOBS,
        completed=tally.completed,
        dead=tally.dead,
        retries=tally.retries,
        rate=tally.rate,
        p95_ms=tally.p95_ms,
        remark=f"one job tailed live: {len(kinds)} events through a broken line, none missed, none twice",
    )


@contextmanager
def _gateway(url: str) -> Iterator[int]:
    """A gateway in a thread of its own; its port."""
    import uvicorn

    from corral.gateway import Settings, create_app
    from corral.gateway.serving import Address, configure

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    settings = Settings(redis_url=url)
    server = uvicorn.Server(
        configure(create_app(settings), Address(port=port), settings, log_level="critical")
    )
    thread = Thread(target=server.run, name="demo-gateway", daemon=True)
    thread.start()
    try:
        deadline = monotonic() + LONGEST_S
        while not server.started:
            if not thread.is_alive() or monotonic() > deadline:
                raise Broken("the gateway does not start")
            sleep(0.01)
        yield port
    finally:
        server.should_exit = True
        thread.join(LONGEST_S)


def _ask(port: int, number: int) -> str:
    """The id of a job that was asked for."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_S)
    try:
        body = json.dumps({"task": "tool", "payload": {"number": number}, "ttl_s": 600})
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"demo-{number}"}
        connection.request("POST", "/v1/jobs", body, headers)
        answer = connection.getresponse()
        expect("answer to POST /v1/jobs", answer.status, 202)
        return str(json.loads(answer.read())["job_id"])
    finally:
        connection.close()


@dataclass
class _Tail:
    """Reads a job's events; breaks its own line once, and goes on after the last event it has seen."""

    port: int
    events: list[tuple[str, str]] = field(default_factory=list)
    """(type, id)"""
    breaks: int = 0

    def follow(self, job_id: str) -> None:
        """Read until the job's last event."""
        while not self.events or self.events[-1][0] not in ("done", "error", "canceled"):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST_S)
            headers = {"Last-Event-ID": self.events[-1][1]} if self.events else {}
            try:
                connection.request("GET", f"/v1/jobs/{job_id}/events", headers=headers)
                answer = connection.getresponse()
                expect("answer to GET /v1/jobs/{id}/events", answer.status, 200)
                self._read(answer)
            finally:
                connection.close()

    def _read(self, answer: http.client.HTTPResponse) -> None:
        event_id = kind = ""
        for line in answer:
            word, _, value = line.decode().rstrip("\n").partition(": ")
            if word == "id":
                event_id = value
            elif word == "event":
                kind = value
            elif word == "data" and event_id:
                self.events.append((kind, event_id))
                event_id = ""
                if len(self.events) == BROKEN_AFTER and not self.breaks:
                    self.breaks += 1
                    return
