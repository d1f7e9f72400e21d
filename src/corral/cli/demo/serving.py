"""A gateway for the demo, in a thread of its own."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep

from corral.cli.demo.stage import Broken

LONGEST_S = 20.0


@contextmanager
def gateway(url: str) -> Iterator[int]:
    """A gateway in a thread of its own; its port."""
    import uvicorn

    from corral.gateway import GatewaySettings, create_app
    from corral.gateway.server import configure

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    settings = GatewaySettings(redis_url=url)
    server = uvicorn.Server(configure(create_app(settings), settings, port, log_level="critical"))
    thread = Thread(target=server.run, name="demo-gateway", daemon=True)
    thread.start()
    try:
        deadline = monotonic() + LONGEST_S
        while not server.started:
            if not thread.is_alive() or monotonic() > deadline:
                raise Broken("the gateway does not start")
            sleep(0.01)
        yield port
    finally:
        server.should_exit = True
        thread.join(LONGEST_S)
