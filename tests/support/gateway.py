"""A gateway on a real socket, in a thread of its own."""

import json
from threading import Thread
from typing import Any

import httpx2
import redis
import uvicorn
from fastapi import FastAPI

from corral.gateway import GatewaySettings, create_app
from corral.gateway.connection import STATE
from corral.gateway.server import configure
from corral.gateway.state import GatewayState
from tests.support.polling import eventually
from tests.support.servers import free_port
from tests.support.sse import Tail

KEYS = {role: f"{role}-key-of-the-tests" for role in ("submit", "read", "operate", "admin")}
KEYS_JSON = json.dumps([{"name": role, "key": key, "roles": [role]} for role, key in KEYS.items()])
"""A key for each role, as the setting `keys` takes them."""


class Gateway:
    """A running gateway, and a client of it."""

    def __init__(self, redis_url: str, app: FastAPI | None = None, **options: Any) -> None:
        self.settings = GatewaySettings(redis_url=redis_url, **options)
        self.app = app or create_app(self.settings)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = uvicorn.Server(configure(self.app, self.settings, self.port))
        self._thread = Thread(target=self.server.run, name="gateway", daemon=True)
        self._thread.start()
        eventually(lambda: self.server.started or not self._thread.is_alive(), pause=0.005)
        assert self.server.started, "the gateway did not start"
        self.client = httpx2.Client(base_url=self.url, timeout=10)

    def create(
        self, payload: Any = None, task: str = "embed", headers: dict[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        """POST /v1/jobs; return the response."""
        document = {"task": task, "payload": {} if payload is None else payload, **more}
        return self.client.post("/v1/jobs", json=document, headers=headers)

    def submit(self, *arguments: Any, **options: Any) -> str:
        """Create a job as `create` does; return its id."""
        response = self.create(*arguments, **options)
        assert response.status_code == 202, response.text
        return str(response.json()["job_id"])

    def tail(self, job_id: str, last_id: str = "", query: str = "", **options: Any) -> Tail:
        """Open a tail of a job's events."""
        return Tail(self.url, f"/v1/jobs/{job_id}/events{query}", last_id, **options)

    @property
    def state(self) -> GatewayState:
        """The state of the process."""
        state: GatewayState = self.server.lifespan.state[STATE]
        return state

    def stop(self, seconds: float = 10.0) -> None:
        self.server.should_exit = True
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the gateway does not stop"
        self.client.close()


def bearer(role: str) -> dict[str, str]:
    """Return the header of a key with that role."""
    return {"Authorization": f"Bearer {KEYS[role]}"}


def keyspace(client: redis.Redis) -> dict[bytes, bytes | None]:
    """Return every key but the audit log, with its content, byte for byte."""
    return {key: client.dump(key) for key in sorted(client.keys("*")) if key != b"corral:audit"}


def problem_of(response: httpx2.Response) -> tuple[int, str]:
    """Return the status and the name of a response's problem."""
    return response.status_code, str(response.json()["type"]).removeprefix("urn:corral:problem:")


def emit(client: redis.Redis, job_id: str, kind: str, data: str = "{}") -> str:
    """Write an event as a foreign worker does, without a hint; return its id."""
    fields = {"type": kind, "ts": "1767225600000", "step": "foreign", "data": data}
    return client.xadd(f"job:{job_id}:events", fields).decode()
