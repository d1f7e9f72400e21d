"""One client's HTTP connection: uvicorn's protocol with time limits, problem responses and abort."""

import asyncio
from typing import TYPE_CHECKING, Any, Literal, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from corral.gateway.problems import Problem
from corral.gateway.responses import with_security

if TYPE_CHECKING:
    from corral.gateway.state import GatewayState

EXTENSION = "corral.connection"
"""The ASGI extension under which a scope has its connection."""
STATE = "gateway"
"""The key of the lifespan's state under which the `GatewayState` is kept."""
HEAD_TIMEOUT_S = 10.0
"""How long the head of a request may take to arrive."""
LINGER_S = 5.0
"""How long a client whose stream was aborted has to read what it was sent."""
MAX_HEAD_BYTES = 65_536
"""Size of a request's head while it arrives; the middleware's limits are narrower."""


class HttpConnection(HttpToolsProtocol):
    """The connection of one client."""

    _awaited: Literal["head", "body"] | None = None
    """The part of a request that is arriving."""
    _timer: asyncio.TimerHandle | None = None
    """Ends the connection when that part is late."""
    _head_bytes = 0

    @property
    def _state(self) -> "GatewayState | None":
        return self.app_state.get(STATE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()
        self.scope["extensions"] = {EXTENSION: {"connection": self}}

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._awaited = "body"
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._awaited = None
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._awaited == "body" and self._state is not None:
            # a body that arrives with its head, as small ones do, needs no timer
            self._start_timer(self._state.settings.body_timeout_s)
        elif self._awaited == "head":
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                detail = f"the head of the request has more than {MAX_HEAD_BYTES} bytes"
                self._refuse(Problem("headers-too-large", detail))

    def _await_head(self) -> None:
        self._head_bytes = 0
        if self._awaited != "head":
            self._awaited = "head"
            self._start_timer(HEAD_TIMEOUT_S)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._on_timeout, seconds)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self, seconds: float) -> None:
        problem = Problem("request-timeout", f"the request's {self._awaited} did not arrive in {seconds:g} s")
        if self._awaited == "head":
            self._refuse(problem)
        elif not self.cycle.response_started:
            # the app waits for the body; closing the connection ends that
            self._write(problem)

    def shutdown(self) -> None:
        """Stop the tails, so that they end before the connections close."""
        if self._state is not None:
            self._state.stop()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed as HTTP."""
        self._refuse(Problem("malformed-request", msg))

    def _refuse(self, problem: Problem) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # an earlier response is still being sent: a second one inside it would corrupt both
            self.transport.abort()
            return
        self._write(problem)

    def _write(self, problem: Problem) -> None:
        response = problem.response()
        head: list[bytes] = [STATUS_LINE[response.status_code], b"connection: close\r\n"]
        for name, value in with_security(response.raw_headers):
            head += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join([*head, b"\r\n", bytes(response.body)]))
        self.transport.close()

    def abort_stream(self, last_frame: bytes) -> None:
        """End a streamed response whose client does not read, past the flow control that holds it back."""
        if self.transport.is_closing():
            return
        self.cycle.disconnected = True
        self.transport.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(last_frame), last_frame))
        self.transport.close()
        self.loop.call_later(LINGER_S, self.transport.abort)


def connection_of(scope: Any) -> HttpConnection | None:
    """Return the connection behind a request; None where another server runs the app."""
    connection = scope.get("extensions", {}).get(EXTENSION, {}).get("connection")
    return connection if isinstance(connection, HttpConnection) else None
