"""Jobs by HTTP: asked for at a gateway, and one of them tailed live through a broken line."""

import asyncio
import http.client
import json
from dataclasses import dataclass, field
from typing import Any

from corral.app import Corral
from corral.cli.demo.serving import LONGEST_S, gateway
from corral.cli.demo.stage import Report, Stage, expect, work_off

JOBS = 50
ANSWER = "The herd is home, the gate is shut, and every one of them was counted twice on the way in."
WORDS = ANSWER.split()
"""What the chat job streams."""
BROKEN_AFTER = 8
"""So many events are read before the line is broken."""


async def jobs_by_http(url: str, stage: Stage) -> Report:
    """Ask for jobs at a gateway of our own, tail the last of them, and compare what came with what should."""
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
                await asyncio.sleep(0.01)  # so does whoever answers
            return {"words": len(WORDS)}

        with gateway(url) as port:
            tail = _Tail(port)

            async def produce() -> None:
                ids = [await asyncio.to_thread(_ask, port, number) for number in range(JOBS)]
                await asyncio.to_thread(tail.follow, ids[-1])

            tally = await work_off(
                app, "jobs by HTTP (protocol streams)", JOBS, produce, stage, concurrency=10
            )
    kinds = [kind for kind, _ in tail.events]
    expect("events of the tailed job", kinds, ["queued", "running", *["event"] * len(WORDS), "done"])
    expect("events that came twice", len(tail.events) - len({event for _, event in tail.events}), 0)
    expect("times the line was broken", tail.breaks, 1)
    return Report(
        title="jobs by HTTP",
        protocol="streams",
        jobs=JOBS,
        completed=tally.completed,
        dead=tally.dead,
        retries=tally.retries,
        rate=tally.rate,
        p95_ms=tally.p95_ms,
        remark=f"a chat job tailed live: {len(kinds)} events through a broken line, none missed, none twice",
    )


def _ask(port: int, number: int) -> str:
    """The id of a job that was asked for."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_S)
    try:
        task = "chat" if number == JOBS - 1 else "tool"
        body = json.dumps({"task": task, "payload": {"number": number}, "ttl_s": 600})
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
