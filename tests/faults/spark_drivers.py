"""A log of many events, a lake kept by processes that are killed, and what must be true after all."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pyarrow.compute as pc

from corral.spark.lake.bronze import last_version
from corral.spark.lake.ingest import source_name
from corral.spark.lake.tables import BRONZE, Lake
from corral.spark.options import QueueAddress
from corral.spark.schema import GAP, POSITION
from tests.spark.clusters import environment
from tests.support.polling import eventually
from tests.support.servers import Server

KEY = "bull:mail:events"
LIFE = ("added", "waiting", "active", "completed")
STARTS_S = 180


def write_events(server: Server, jobs: int, first: int = 0) -> list[str]:
    """Four events of each job into the log, as the protocol writes them; their ids."""
    ids: list[str] = []
    with server.connect() as client:
        for start in range(first, first + jobs, 2500):
            pipe = client.pipeline(transaction=False)
            for number in range(start, min(start + 2500, first + jobs)):
                for event in LIFE:
                    fields = {"event": event, "jobId": str(number)}
                    pipe.xadd(KEY, fields | ({"name": "send"} if event == "added" else {}))
            ids += [entry.decode() for entry in pipe.execute()]
    return ids


class Bronze:
    """What a reader without Spark finds in a lake's bronze."""

    def __init__(self, lake: Lake) -> None:
        table = lake.table(BRONZE).dataset().to_table(["event_id", "event", "data"])
        events, gaps = [], []
        for row in table.filter(pc.not_equal(table["event"], POSITION)).to_pylist():
            (gaps if row["event"] == GAP else events).append(row)
        self.ids = [row["event_id"] for row in events]
        self.missing = [orjson.loads(row["data"])["missing"] for row in gaps]

    def assert_each_once(self, among: set[str]) -> None:
        """No event twice, and none that nobody wrote."""
        doubled = [event_id for event_id, count in Counter(self.ids).items() if count > 1]
        assert doubled == []
        assert set(self.ids) <= among


class Driver:
    """A program with a Spark of its own, in a process group that can be killed as one."""

    def __init__(self, folder: Path, program: str, *words: str) -> None:
        self.log = folder / f"{program}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"tests.spark.programs.{program}", *words],
                env=environment(), cwd=folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, word: str) -> None:
        assert eventually(lambda: word in self.output() or self.process.poll() is not None, STARTS_S)
        assert self.process.poll() is None, self.output()[-3000:]

    def finish(self, seconds: float = 600) -> dict[str, Any]:
        """Its last line, once it has ended well."""
        assert self.process.wait(seconds) == 0, self.output()[-3000:]
        lines = [line for line in self.output().splitlines() if line.startswith("{")]
        return orjson.loads(lines[-1]) if lines else {}

    def kill(self) -> None:
        """Python and Java at once, in the middle of whatever they do."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def driver(folder: Path, program: str, *words: str) -> Iterator[Driver]:
    made = Driver(folder, program, *words)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.kill()


def batches_done(lake: Lake) -> int:
    """How many batches are in bronze."""
    source = source_name(QueueAddress("", "bullmq", "bull", "mail"))
    return last_version(lake.table(BRONZE).open(), source) + 1


def kill_soon_after(
    running: Driver, is_reached: Callable[[], object], random: Random, seconds: float = 1.0
) -> bool:
    """Let it work until that is reached and up to `seconds` longer, then kill it.

    Return False where it had ended already: Spark gives up after ten seconds on a busy machine.
    """
    eventually(lambda: is_reached() or running.process.poll() is not None, STARTS_S)
    deadline = time.monotonic() + random.uniform(0, seconds)
    eventually(lambda: time.monotonic() > deadline, seconds + 1)
    if running.process.poll() is not None:
        assert "Python worker failed to connect back" in running.output(), running.output()[-3000:]
        return False
    running.kill()
    return True
