"""The health of a worker process by HTTP: /livez, /readyz and /metrics."""

import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from prometheus_client import CONTENT_TYPE_LATEST

IDLE_CLIENT_S = 10.0
"""How long a connection may be silent."""


class HealthServer(ThreadingHTTPServer):
    """Answers in threads of its own, so that a busy event loop does not look dead.

    /livez is 200 while the process runs, /readyz 200 while `is_ready` returns True, else 503.
    """

    daemon_threads = True

    def __init__(
        self, listener: socket.socket, is_ready: Callable[[], bool], exposition: Callable[[], bytes]
    ) -> None:
        super().__init__(listener.getsockname()[:2], _HealthRequest, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.socket.listen()
        self.is_ready = is_ready
        self.exposition = exposition

    def start(self) -> None:
        """Serve until the process ends."""
        Thread(target=self.serve_forever, name="corral-health", daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hang up."""


class _HealthRequest(BaseHTTPRequestHandler):
    server: HealthServer
    timeout = IDLE_CLIENT_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/livez":
            self._answer(HTTPStatus.OK, b"ok\n")
        elif path == "/readyz":
            is_ready = self.server.is_ready()
            self._answer(
                HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE,
                b"ready\n" if is_ready else b"not ready: starting, stopping, or Redis does not reply\n",
            )
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, self.server.exposition(), CONTENT_TYPE_LATEST)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"try /livez, /readyz or /metrics\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(
        self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8"
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no access log."""
