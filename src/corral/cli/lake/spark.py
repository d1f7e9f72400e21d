"""Spark for commands: sessions that end with their command, and progress bars."""

import asyncio
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer import Option

from corral.cli.output import Output
from corral.errors import InvalidOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from corral.spark.lake.ingest import LakeProgress
    from corral.spark.lake.tables import Lake

T = TypeVar("T")
JAVA_EXIT_S = 10.0
POLL_S = 0.1
PACKAGES = ("pyspark", "pyarrow", "pandas", "deltalake", "duckdb")


async def in_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread; Ctrl-C ends the process at once, as a thread cannot be ended."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return await asyncio.to_thread(work)
    finally:
        signal.signal(signal.SIGINT, before)


async def in_cancellable_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread; when cancelled, kill its Java process, which ends the work too."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        # each of Spark's threads would print a traceback
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        with redirect_stderr(StringIO()):
            while not working.done():
                _kill_java()
                await asyncio.wait([working], timeout=POLL_S)
        if not working.cancelled():
            working.exception()  # it ended because its Java process did
        raise


def _kill_java() -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()


def check_packages() -> None:
    """Raise an error without the packages of the extra `spark`."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InvalidOptions(
            f"Spark needs packages that are not installed ({', '.join(missing)}); pip install 'corral[spark]'"
        )


def check_java() -> None:
    """Raise an error without a Java that Spark runs on."""
    from corral.spark import NoJava, find_java

    try:
        find_java()
    except NoJava as error:
        raise InvalidOptions(str(error)) from None


@dataclass(frozen=True)
class SparkOptions:
    """Where and how Spark runs."""

    master: Annotated[
        str | None, Option(help="spark://host:7077 or sc://host:15002; default: this machine.")
    ] = None
    conf: Annotated[list[str] | None, Option(metavar="KEY=VALUE", help="A Spark setting; repeatable.")] = None

    @contextmanager
    def session(self, lake: "Lake | None") -> "Iterator[SparkSession]":
        """Start a session; Spark's messages go to a file in the lake's folder."""
        log = None if lake is None or lake.folder is None else lake.folder / "_spark.log"
        with started(self.master, self.settings, log) as session:
            yield session

    @property
    def settings(self) -> dict[str, str]:
        """The settings by name.

        >>> SparkOptions(conf=["spark.driver.memory=4g"]).settings
        {'spark.driver.memory': '4g'}
        """
        settings = {}
        for setting in self.conf or ():
            key, separator, value = setting.partition("=")
            if not separator or not key.startswith("spark."):
                raise InvalidOptions(f"--conf is {setting!a}; use one such as spark.driver.memory=4g")
            settings[key] = value
        return settings


@contextmanager
def started(master: str | None, conf: Mapping[str, str], log: Path | None = None) -> "Iterator[SparkSession]":
    """Start a Spark session of its own; Spark's messages go to a file and not to the terminal."""
    check_packages()
    from corral.spark import session as new_session

    path = log or Path(tempfile.gettempdir()) / f"corral-spark-{os.getpid()}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _stderr_to(path):
            session = new_session(master, conf={"spark.log.level": "ERROR", **conf})
        try:
            yield session
        finally:
            _stop(session)
    finally:
        if log is None:
            path.unlink(missing_ok=True)


def _stop(session: "SparkSession") -> None:
    """Stop the session and its Java process, which would otherwise outlive the command for a moment."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        session.stop()
        return  # a Spark Connect session has none
    try:
        session.stop()
    except Exception:
        if gateway.proc.poll() is None:
            raise
        # its Java process is gone, so nothing is left to stop
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(JAVA_EXIT_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of processes that are started meanwhile to a file."""
    saved = os.dup(2)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.dup2(opened, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(opened)
        os.close(saved)


@contextmanager
def progress_bar(output: Output, title: str) -> "Iterator[Callable[[LakeProgress], None]]":
    """Show the progress of a lake: a bar in a terminal, a line for each step elsewhere."""
    if output.as_json or not output.console.is_terminal:
        yield _print_lines(output, title)
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("events", markup=False),
        TimeElapsedColumn(),
        console=output.console,
    ) as bar:
        task = bar.add_task(title, total=None)

        def update(progress: "LakeProgress") -> None:
            total = progress.read + progress.behind if progress.read else None
            bar.update(task, description=f"{title}: {progress.step}", completed=progress.read, total=total)

        yield update


def _print_lines(output: Output, title: str) -> "Callable[[LakeProgress], None]":
    last = ""

    def print_line(progress: "LakeProgress") -> None:
        nonlocal last
        line = f"{title}: {progress.step}"
        if progress.read:
            line += f", {progress.read:,} events"
        if progress.behind:
            line += f", {progress.behind:,} to go"
        if line != last:
            last = line
            output.line(line)

    return print_line
