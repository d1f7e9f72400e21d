"""Spark for a command: started where it can be, told in one sentence where it cannot."""

import asyncio
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from corral.cli.screen import Screen
from corral.errors import InvalidOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from corral.spark.lake.ingest import LakeProgress

T = TypeVar("T")
JAVA_ENDS_S = 10.0
LOOK_S = 0.1
NEEDED = ("pyspark", "pyarrow", "pandas")


async def aside(work: Callable[[], T]) -> T:
    """What the work returns, done in a thread; Ctrl-C ends the process at once, as no thread can be ended."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return await asyncio.to_thread(work)
    finally:
        signal.signal(signal.SIGINT, before)


async def ended_when_cancelled(work: Callable[[], T]) -> T:
    """What the work returns, done in a thread; cancelled, its Java is ended, and with that the work too."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        # what is cut off would be told with a trace by each of Spark's threads
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        with redirect_stderr(StringIO()):
            while not working.done():
                _kill_java()
                await asyncio.wait([working], timeout=LOOK_S)
        if not working.cancelled():
            working.exception()  # it ended because its Java did
        raise


def _kill_java() -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()


def check_packages() -> None:
    """Refuse to go on without the packages that the extra `spark` brings."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidOptions(
            f"the lake needs packages that are not here ({', '.join(missing)}); pip install 'corral[spark]'"
        )


def check_java() -> None:
    """Refuse to go on without a Java that Spark runs on."""
    from corral.spark import NoJava, find_java

    try:
        find_java()
    except NoJava as error:
        raise InvalidOptions(str(error)) from None


def settings(words: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` words as Spark's configuration.

    >>> settings(["spark.driver.memory=4g"])
    {'spark.driver.memory': '4g'}
    """
    found = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key.startswith("spark."):
            raise InvalidOptions(f"--conf is {word!a}; use one such as spark.driver.memory=4g")
        found[key] = value
    return found


@contextmanager
def started(master: str | None, conf: Mapping[str, str], log: Path | None = None) -> "Iterator[SparkSession]":
    """A session of its own; Spark's own words go to a file, and are shown by none of our commands."""
    check_packages()
    from corral.spark import session

    spoken = log or Path(tempfile.gettempdir()) / f"corral-spark-{os.getpid()}.log"
    spoken.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _errors_to(spoken):
            spark = session(master, conf={"spark.log.level": "ERROR", **conf})
        try:
            yield spark
        finally:
            _end(spark)
    finally:
        if log is None:
            spoken.unlink(missing_ok=True)


def _end(spark: "SparkSession") -> None:
    """Stop the session, and its Java too: left alone, that would outlive the command by a moment."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        spark.stop()
        return  # a Spark Connect session has none
    try:
        spark.stop()
    except Exception:
        if gateway.proc.poll() is None:
            raise
        # its Java is gone, and that is all that was to be stopped
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(JAVA_ENDS_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """What processes that are started meanwhile write to standard error goes to a file."""
    kept = os.dup(2)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.dup2(opened, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(opened)
        os.close(kept)


@contextmanager
def bar(screen: Screen, title: str) -> "Iterator[Callable[[LakeProgress], None]]":
    """Shows how far a run of the lake is: a bar at a terminal, a line for each part elsewhere."""
    if screen.as_json:
        yield lambda progress: None
    elif not screen.out.is_terminal:
        yield _lines(screen, title)
    else:
        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("events", markup=False),
            TimeElapsedColumn(),
            console=screen.out,
        ) as progress:
            yield _drawing(progress, progress.add_task(title, total=None), title)


def _lines(screen: Screen, title: str) -> "Callable[[LakeProgress], None]":
    said: list[str] = []

    def show(progress: "LakeProgress") -> None:
        line = f"{title}: {progress.step}"
        if progress.read:
            line += f", {progress.read:,} events"
        if progress.behind:
            line += f", {progress.behind:,} to go"
        if line not in said[-1:]:
            said.append(line)
            screen.line(line)

    return show


def _drawing(progress: Progress, task: TaskID, title: str) -> "Callable[[LakeProgress], None]":
    def show(told: "LakeProgress") -> None:
        known: dict[str, Any] = {"total": told.read + told.behind} if told.read else {}
        progress.update(task, description=f"{title}: {told.step}", completed=told.read, **known)

    return show
