"""Gateways and workers as processes of their own, to be killed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2

from tests.support.polling import eventually
from tests.support.servers import free_port

ROOT = Path(__file__).resolve().parents[2]

WORKER = """
import asyncio, os, sys
from corral import Corral

app = Corral(os.environ["REDIS_URL"], protocol="streams")

@app.job("embed")
async def embed(job):
    await job.emit("begun", {})
    await asyncio.sleep(0.02)
    await job.emit("half", {})
    await asyncio.sleep(0.02)
    return {"n": job.data["n"]}

profile = {"lock_ms": 500, "recover_ms": 200, "extra": {"max_deliveries": 1000}}
asyncio.run(app.run(concurrency=5, **profile))
"""


class GatewayProcess:
    """`corral gateway` as it is typed."""

    def __init__(
        self,
        redis_url: str,
        workers: int = 1,
        port: int | None = None,
        app: str | None = None,
        **settings: str,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._reply = "no reply"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "corral.cli", "gateway", "--log-level", "error"),
                *("--port", str(self.port), "--workers", str(workers)),
                *(() if app is None else (app,)),
            ],
            env={**os.environ, "REDIS_URL": redis_url, **settings},
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )

    def ready(self, seconds: float = 60.0) -> "GatewayProcess":
        """Wait until the gateway replies that it is ready."""
        # once is enough: under load the next reply may take longer than it is waited for
        has_replied = eventually(
            lambda: self._is_ready() or self.process.poll() is not None, seconds, pause=0.05
        )
        assert self.process.poll() is None, f"the gateway ended with {self.process.returncode}"
        assert has_replied, f"the gateway is not ready after {seconds} s: {self._reply}"
        return self

    def _is_ready(self) -> bool:
        try:
            response = httpx2.get(f"{self.url}/readyz", timeout=2)
        except httpx2.HTTPError as error:
            self._reply = repr(error)
            return False
        self._reply = f"{response.status_code} {response.text}"
        return response.status_code == 200

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def start_worker(redis_url: str) -> "subprocess.Popen[Any]":
    """A worker of jobs called embed."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env={**os.environ, "REDIS_URL": redis_url},
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
