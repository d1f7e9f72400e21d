"""Measure how many acknowledged jobs each durability loses by each fault, and what it costs.

`python -m tests.faults.durability` writes the table of docs/reliability.md. A power failure is simulated: the
server is killed, and its append-only file is cut to what it had synced by then, as strace has seen it.
"""

import asyncio
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from corral import Corral, CorralError, NotDurable
from corral.core.options import Durability
from tests.support.polling import eventually
from tests.support.servers import Server, free_port, start_valkey, valkey_binary

QUEUE = "durability"
PRODUCERS = 20
"""Adds that are under way at a time."""
LAG_S = 0.3
POWER = "power failure"
LATE = f"failover to a replica that is {LAG_S:g} s behind"


@dataclass
class Setting:
    """A durability, and how the server keeps data."""

    durability: Durability
    fsync: str | None
    """Its policy of syncing; None: no append-only file."""
    has_replica: bool = False

    def __str__(self) -> str:
        keeps = "no append-only file" if self.fsync is None else f"`appendfsync {self.fsync}`"
        return f"`{self.durability}` | {keeps}{', a replica' if self.has_replica else ''}"


@dataclass
class Measured:
    """What one setting lost by one fault."""

    acknowledged: int = 0
    lost: int = 0
    in_doubt: int = 0
    seconds: list[float] = field(default_factory=list)
    """How long adds took."""

    def quantile(self, share: float) -> float:
        """Return the milliseconds within which so many adds returned."""
        return statistics.quantiles(self.seconds, n=1000)[int(share * 1000) - 1] * 1000


SETTINGS = [
    Setting("memory", None),
    Setting("memory", "everysec"),
    Setting("memory", "always"),
    Setting("disk", "always"),
    Setting("memory", None, has_replica=True),
    Setting("replicas", None, has_replica=True),
]


class Deployment:
    """The server of a setting, with its replica; one fault ends it, and what is left answers afterwards."""

    def __init__(self, setting: Setting, *, is_traced: bool) -> None:
        self.setting = setting
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.folder = Path(tempfile.mkdtemp(prefix="corral-durability-"))
        self._trace = self.folder / "trace" if is_traced else None
        self._process = self._start()
        self._replica: Server | None = None
        if setting.has_replica:
            self._replica = start_valkey("--replicaof", "127.0.0.1", str(self.port))
            with self._replica.connect() as client:
                assert eventually(lambda: client.info("replication")["master_link_status"] == "up"), (
                    "the replica did not connect"
                )

    def _start(self) -> "subprocess.Popen[bytes]":
        fsync = self.setting.fsync
        keeps = ["--appendonly", "no"] if fsync is None else ["--appendonly", "yes", "--appendfsync", fsync]
        command = [valkey_binary(), "--port", str(self.port), "--dir", str(self.folder), "--save", "", *keeps]
        command += ["--repl-diskless-sync-delay", "0"]
        if self._trace is not None:
            calls = ["-e", "trace=write,fdatasync", "--seccomp-bpf", "-y", "-s", "0", "-o", str(self._trace)]
            command = ["strace", "-f", "-qq", *calls, *command]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert eventually(self._answers), f"the server on port {self.port} did not start"
        return process

    def _answers(self) -> bool:
        with suppress(redis.RedisError), self.connect() as client:
            return bool(client.ping())
        return False

    def connect(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def kill(self) -> None:
        """End the server at once; it has no time to write or send anything."""
        with self.connect() as client:
            pid = client.info("server")["process_id"]
        subprocess.run(["kill", "-9", str(pid)], check=True)
        self._process.wait()

    def lose_power(self) -> None:
        """End the server, and lose what it has not synced."""
        self.kill()
        assert self._trace is not None
        [log] = (self.folder / "appendonlydir").glob("*.incr.aof")
        size = synced_bytes(self._trace.read_text(errors="replace").splitlines(), log.name)
        with log.open("r+b") as file:
            file.truncate(size)
        self._trace = None

    def fail_over_late(self) -> None:
        """Hold up the replica, and end the server a little later."""
        assert self._replica is not None
        self._replica.process.send_signal(signal.SIGSTOP)
        time.sleep(LAG_S)
        self.kill()
        self._replica.process.send_signal(signal.SIGCONT)

    def survivors(self) -> set[str]:
        """Return the ids of the jobs that are there after the fault: at the replica, or after a restart."""
        if self._replica is not None:
            client = self._replica.connect()
            client.replicaof("NO", "ONE")
        else:
            self._process = self._start()
            client = self.connect()
        with client:
            prefix = f"bull:{QUEUE}:"
            keys = client.scan_iter(match=f"{prefix}job-*", count=10_000)
            return {key.decode().removeprefix(prefix) for key in keys}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._replica is not None:
            self._replica.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def synced_bytes(trace: list[str], name: str) -> int:
    """Return how much of a file was synced: what was written before the last sync that ended had begun."""
    written = synced = 0
    begun: dict[str, int] = {}
    for line in trace:
        process, _, call = line.partition(" ")
        call = call.strip()
        if call.startswith("write(") and f"{name}>" in call:
            if match := re.search(r"= (\d+)$", call):
                written += int(match[1])
        elif call.startswith("fdatasync(") and f"{name}>" in call:
            begun[process] = written
        if "fdatasync" in call and call.endswith("= 0") and process in begun:
            synced = max(synced, begun.pop(process))
    return synced


async def add_until(deployment: Deployment, count: int, fault: Callable[[], None], result: Measured) -> None:
    """Add jobs from several tasks until the fault comes, after about so many were acknowledged."""
    setting = deployment.setting
    app = Corral(deployment.url, durability=setting.durability, durability_timeout=2)
    acknowledged: list[str] = []
    numbers = iter(range(10**9))

    async def produce() -> None:
        queue = app.queue(QUEUE)
        while True:
            job_id = f"job-{next(numbers)}"
            began = time.perf_counter()
            try:
                await queue.add("work", {"n": 1}, id=job_id)
            except NotDurable:
                result.in_doubt += 1
                continue
            except CorralError:
                return
            result.seconds.append(time.perf_counter() - began)
            acknowledged.append(job_id)

    async with app:
        tasks = [asyncio.create_task(produce()) for _ in range(PRODUCERS)]
        while len(acknowledged) < count:
            await asyncio.sleep(0.001)
        await asyncio.sleep(random.random() * 0.5)
        # in a thread: what is answered until then counts
        await asyncio.to_thread(fault)
        await asyncio.gather(*tasks)
    survivors = deployment.survivors()
    result.acknowledged += len(acknowledged)
    result.lost += len(set(acknowledged) - survivors)


def measure(setting: Setting, fault: str, jobs: int, rounds: int) -> Measured:
    """Return what a setting loses by a fault, over several rounds."""
    result = Measured()
    for _ in range(rounds):
        deployment = Deployment(setting, is_traced=fault == POWER)
        try:
            actions = {POWER: deployment.lose_power, LATE: deployment.fail_over_late}
            action = actions.get(fault, deployment.kill)
            asyncio.run(add_until(deployment, jobs // rounds, action, result))
        finally:
            deployment.close()
    return result


def faults_of(setting: Setting) -> list[str]:
    """Return the faults that a setting is measured by."""
    if setting.has_replica:
        return ["failover", LATE]
    has_trace = setting.fsync is not None and shutil.which("strace") is not None
    return ["killed server", *([POWER] if has_trace else [])]


def main(jobs: int, rounds: int) -> None:
    print("| durability | the server | fault | acknowledged | lost | add p50 | p99 |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for setting in SETTINGS:
        for fault in faults_of(setting):
            result = measure(setting, fault, jobs, rounds)
            # strace slows the server down, so latencies are those of runs without it
            times = ["–", "–"]
            if fault != POWER:
                times = [f"{result.quantile(share):.1f} ms" for share in (0.5, 0.99)]
            print(
                f"| {setting} | {fault} | {result.acknowledged:,} | {result.lost:,} | {' | '.join(times)} |",
                flush=True,
            )


if __name__ == "__main__":
    main(*(map(int, sys.argv[1:]) if len(sys.argv) > 1 else (100_000, 10)))
