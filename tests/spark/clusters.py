"""Spark beyond one process: a standalone master with two workers, and a Connect server, on loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark

from corral.spark import find_java
from tests.support.polling import eventually
from tests.support.servers import free_port

HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]
# little data and a short life: no time for the second compiler and for verifying Spark's own classes
SMALL = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
STARTS_S = 120


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def comes_up(started: "subprocess.Popen[bytes]", port: int) -> bool:
    """Does the process listen there before it ends?"""
    eventually(lambda: answers(port) or started.poll() is not None, STARTS_S)
    return answers(port)


def environment() -> dict[str, str]:
    """For a process of Spark's: our Java, our Python, nothing from another Spark."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "768m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
    }


@contextmanager
def process(folder: Path, name: str, command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A process and its children, gone afterwards; what it says is in `<folder>/<name>.log`."""
    with open(folder / f"{name}.log", "wb") as log:
        started = subprocess.Popen(
            command, env=environment(), stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        yield started
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def _class(*words: str) -> list[str]:
    return [str(HOME / "bin" / "spark-class"), *words]


@contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[str]:
    """The address of a master with so many workers, and the cores of each."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        command = _class("org.apache.spark.deploy.master.Master", *words)
        started = stack.enter_context(process(folder, "master", command))
        assert comes_up(started, port), (folder / "master.log").read_text()
        for number in range(workers):
            words = ["--cores", str(cores), "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0"]
            words += ["--work-dir", str(folder / f"work-{number}"), master]
            command = _class("org.apache.spark.deploy.worker.Worker", *words)
            stack.enter_context(process(folder, f"worker-{number}", command))
        logs = [folder / f"worker-{number}.log" for number in range(workers)]
        assert eventually(
            lambda: all("Successfully registered with master" in log.read_text() for log in logs), STARTS_S
        ), logs[0].read_text()
        yield master


@contextmanager
def connect_server(folder: Path, master: str = "local[2]") -> Iterator[str]:
    """The address of a Spark Connect server."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": SMALL,
        "spark.executor.extraJavaOptions": SMALL,
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.ui.enabled": "false",
    }
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(HOME / "bin" / "spark-submit"), "--master", master, "--class", name, *words]
    with process(folder, "connect", [*command, "spark-internal"]) as started:
        assert comes_up(started, port), (folder / "connect.log").read_text()
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def connect_to_standalone(folder: Path) -> Iterator[str]:
    """The address of a Spark Connect server whose tasks run on a master with two workers."""
    with standalone(folder) as master, connect_server(folder, master) as address:
        yield address


def output_of(program: str, folder: Path, *words: str, timeout: float = 240) -> dict[str, Any]:
    """Run a program; return its last line of output, as JSON."""
    ended = subprocess.run(
        [sys.executable, "-m", f"tests.spark.programs.{program}", *words],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    document: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return document
