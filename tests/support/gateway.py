"""A gateway on a real socket, in a thread of its own."""

from threading import Thread
from typing import Any

import httpx2
import redis
import uvicorn
from fastapi import FastAPI

from corral.gateway import Settings, create_app
from corral.gateway.serving import Address, configure
from tests.support.polling import eventually
from tests.support.servers import free_port
from tests.support.sse import Tail

KEYS = {role: f"{role}-key-of-the-tests" for role in ("submit", "read", "operate", "admin")}


class Gateway:
    """A running gateway, and a client of it."""

    def __init__(self, redis_url: str, app: FastAPI | None = None, **options: Any) -> None:
        self.settings = Settings(redis_url=redis_url, **options)
        self.app = app or create_app(self.settings)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = uvicorn.Server(configure(self.app, Address(port=self.port), self.settings))
        self._thread = Thread(target=self.server.run, name="gateway", daemon=True)
        self._thread.start()
        eventually(lambda: self.server.started or not self._thread.is_alive(), pause=0.005)
        assert self.server.started, "the gateway did not start"
        self.client = httpx2.Client(base_url=self.url, timeout=10)

    def submit(self, payload: Any = None, **more: Any) -> str:
        """Submit a job by HTTP; return its id."""
        headers = more.pop("headers", None)
        document = {"task": "embed", "payload": {} if payload is None else payload, **more}
        answer = self.client.post("/v1/jobs", json=document, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])

    def tail(self, job_id: str, last_id: str = "", query: str = "", **options: Any) -> Tail:
        return Tail(self.url, f"/v1/jobs/{job_id}/events{query}", last_id, **options)

    @property
    def hall(self) -> Any:
        """What the process keeps, for looking whether anything is left behind."""
        return self.server.lifespan.state["hall"]

    def stop(self, seconds: float = 10.0) -> None:
        self.server.should_exit = True
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the gateway does not stop"
        self.client.close()


def bearer(role: str) -> dict[str, str]:
    """The header of a key with that role."""
    return {"Authorization": f"Bearer {KEYS[role]}"}


def keyspace(client: redis.Redis) -> dict[bytes, bytes | None]:
    """Every key and what it holds, byte for byte."""
    return {key: client.dump(key) for key in sorted(client.keys("*"))}
