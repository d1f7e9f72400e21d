"""The HTTP protocol of the gateway: uvicorn's, with limits, problems, and a hand on the connection."""

import asyncio
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from corral.gateway.guard import with_security
from corral.gateway.problems import Problem

EXTENSION = "corral.connection"
"""Where an ASGI scope has the connection."""
HEADERS_S = 10.0
"""How long the head of a request may take to come."""
LINGER_S = 5.0
"""How long a client that was cut has to read what it was sent."""
MOST_HEAD_BYTES = 65_536
"""Of a request's head while it comes; the guard's own limits are narrower, and looked at when it is whole."""


class Stoppable(Protocol):
    """What hears first that the gateway stops."""

    def stop(self) -> None:
        """Let everything end."""


class GatewayProtocol(HttpToolsProtocol):
    """One connection of one client."""

    _deadline: asyncio.TimerHandle | None = None
    """Until when the rest of a head is waited for."""
    _body_deadline: asyncio.TimerHandle | None = None
    _is_body_due = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._stop_body_watch()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        self._head_bytes = 0
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADERS_S, self._head_is_late)

    def _head_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        self._deadline = None
        self._refuse(Problem("request-timeout", f"no whole head of a request within {HEADERS_S:g} s"))

    def _watch_body(self) -> None:
        """A body that came with its head, as small ones do, needs no timer."""
        self._stop_body_watch()
        if self._is_body_due:
            seconds = self.app_state["hall"].settings.body_s
            self._body_deadline = self.loop.call_later(seconds, self._body_is_late, seconds)

    def _stop_body_watch(self) -> None:
        if self._body_deadline is not None:
            self._body_deadline.cancel()
            self._body_deadline = None

    def _body_is_late(self, seconds: float) -> None:
        self._body_deadline = None
        if not self.cycle.response_started:
            # the app waits for the body; the closed connection tells it that none will come
            self._write(Problem("request-timeout", f"no more of the body came within {seconds:g} s"))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_body_due or self._body_deadline is not None:
            self._watch_body()
        if self._deadline is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                detail = f"the head of the request has more than {MOST_HEAD_BYTES} bytes"
                self._refuse(Problem("headers-too-large", detail))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._watch_head()
        self.scope["extensions"] = {EXTENSION: {"connection": self}}

    def on_headers_complete(self) -> None:
        self._head_came()
        self._is_body_due = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_body_due = False
        super().on_message_complete()

    def shutdown(self) -> None:
        """The gateway stops: whoever tails hears of it before the connection ends."""
        stoppable: Stoppable | None = self.app_state.get("hall")
        if stoppable is not None:
            stoppable.stop()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read as HTTP is a problem too."""
        self._refuse(Problem("malformed-request", msg))

    def _refuse(self, problem: Problem) -> None:
        self._head_came()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # an earlier answer is still being sent: another inside it would make nonsense of both
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

    def cut(self, last_words: bytes) -> None:
        """End a streamed answer whose client does not read: last words, and a little time to read them.

        The server's flow control would hold them back for as long as the client does not read.
        """
        if self.transport.is_closing():
            return
        self.cycle.disconnected = True
        self.transport.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(last_words), last_words))
        self.transport.close()
        self.loop.call_later(LINGER_S, self.transport.abort)


def connection_of(scope: Any) -> GatewayProtocol | None:
    """The connection behind a request, where the server is ours."""
    connection = scope.get("extensions", {}).get(EXTENSION, {}).get("connection")
    return connection if isinstance(connection, GatewayProtocol) else None
