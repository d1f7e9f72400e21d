"""One client's HTTP connection: uvicorn's protocol with limits of size and time, and problem responses."""

import asyncio
import sys
from collections import Counter, defaultdict
from ipaddress import ip_address, ip_network
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import TYPE_CHECKING, Any, Literal, cast

from httptools import HttpParserError, HttpParserUpgrade
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from corral.gateway.problems import Problem
from corral.gateway.responses import with_security

if TYPE_CHECKING:
    from corral.gateway.state import GatewayState

EXTENSION = "corral.connection"
"""The ASGI extension under which a scope has its connection."""
STATE = "gateway"
"""The key of the lifespan's state under which the `GatewayState` is kept."""
HEAD = "corral.head"
"""The key of a scope whose request is a HEAD."""
HEAD_TIMEOUT_S = 10.0
"""How long the head of a request may take to arrive."""
LINGER_S = 5.0
"""How long a client whose stream was aborted has to read what it was sent."""
DRAIN_S = 2.0
"""How long a client that was answered before its request was complete has to read the response."""
MAX_HEAD_BYTES = 65_536
"""Size of a request's head while it arrives; the middleware's limits are narrower."""
FRAMING = 2
"""How many times its largest size a body may take on the wire, with the sizes of chunks and trailers."""
PARSED_BYTES = 16_384
"""How much is parsed at once; each part counts for the request that its end belongs to."""

RESERVED_FILES = 100
"""Open files that are kept for other purposes than clients' connections."""


class HttpConnection(HttpToolsProtocol):
    """The connection of one client."""

    address: str
    """By which connections are counted."""
    _awaited: Literal["head", "body"] | None = None
    """The part of a request that is arriving."""
    _timer: asyncio.TimerHandle | None = None
    """Ends the connection when that part is late."""
    _request_bytes = 0
    """How much of that request has arrived."""
    _is_draining = False
    """Whether what arrives is dropped, until the client closes the connection."""
    _closes_after_response = False
    _unanswered: list[RequestResponseCycle]
    """Requests without a complete response; several where they were pipelined."""
    _is_streaming = False
    """Whether the response has no end of its own; a further request would wait for it for ever."""

    @property
    def _state(self) -> "GatewayState | None":
        return self.app_state.get(STATE)

    @property
    def _limits(self) -> "ConnectionLimits | None":
        return self._state.connections if self._state is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._unanswered = []
        self.address = _network(self.client[0]) if self.client else ""
        self._await_head()
        if self._limits is not None and not self._limits.admit(self):
            self._write(Problem("too-many-connections", "too many connections are open; try later"))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._limits is not None:
            self._limits.remove(self)
        self._disconnect_all()
        super().connection_lost(exc)

    def _disconnect_all(self) -> None:
        """Tell the app that nobody reads its responses; uvicorn tells only the last of pipelined requests."""
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._request_bytes = 0
        self._await_head()
        self.scope["extensions"] = {EXTENSION: {"connection": self}}

    def on_header(self, name: bytes, value: bytes) -> None:
        # behind a body it is a trailer, which must not act as a header
        if self._awaited == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._unanswered = [cycle for cycle in self._unanswered if not cycle.response_complete]
        self._unanswered.append(self.cycle)
        self._stop_timer()
        self._awaited = "body"

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._awaited = None
        if self._limits is not None:
            self._limits.set_waiting(self, False)
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        for start in range(0, len(data), PARSED_BYTES):
            is_behind_stream = self._is_streaming and self._awaited is None
            if self._is_draining or is_behind_stream or self.transport.is_closing():
                return
            part = data[start : start + PARSED_BYTES]
            try:
                self.parser.feed_data(part)
            except HttpParserUpgrade:
                # what follows is in a protocol that is not spoken here
                self.cycle.keep_alive = False
                self._is_draining = True
            except HttpParserError:
                self._refuse(Problem("malformed-request", "the request is not valid HTTP"))
            else:
                self._request_bytes += len(part)
                self._check_size()
        if self._timer is None and not self._is_draining:
            self._await_rest()

    def _check_size(self) -> None:
        if self._awaited == "head" and self._request_bytes > MAX_HEAD_BYTES:
            detail = f"the head of the request has more than {MAX_HEAD_BYTES} bytes"
            self._refuse(Problem("headers-too-large", detail))
        elif self._awaited == "body" and self._state is not None:
            limit = MAX_HEAD_BYTES + FRAMING * self._state.settings.max_body_bytes
            if self._request_bytes > limit:
                detail = f"the request has more than {limit} bytes with its chunk sizes and trailers"
                self._refuse(Problem("body-too-large", detail))

    def _await_rest(self) -> None:
        """Start the timer of what is arriving, once: it counts from the beginning, whatever trickles in."""
        if self._awaited == "body" and self._state is not None:
            # a body that arrives with its head, as small ones do, needs no timer
            self._start_timer(self._state.settings.body_timeout_s)
        elif self._awaited is None and self.cycle.response_complete:
            # line breaks between requests, which stopped the timer of an idle connection
            self._await_head()

    def _await_head(self) -> None:
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
        if self.flow.read_paused:
            # the request waits for an earlier one, not for the client
            self._start_timer(seconds)
            return
        detail = f"the request's {self._awaited} did not arrive in {seconds:g} s"
        self._refuse(Problem("request-timeout", detail))

    def shutdown(self) -> None:
        """Stop the tails, so that they end before the connections close."""
        if self._state is not None:
            self._state.stop()
        super().shutdown()

    def _refuse(self, problem: Problem) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._is_answering():
            # a second response inside the one that is being sent would corrupt both
            self.transport.abort()
            return
        self._write(problem)

    def _is_answering(self) -> bool:
        """Return whether a response is being sent, or an earlier request is waiting for one."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return cycle.response_started or bool(self.pipeline) or self._awaited != "body"

    def _write(self, problem: Problem) -> None:
        response = problem.response()
        head: list[bytes] = [STATUS_LINE[response.status_code], b"connection: close\r\n"]
        for name, value in with_security(response.raw_headers):
            head += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join([*head, b"\r\n", bytes(response.body)]))
        self._disconnect_all()
        self._drain()

    def begin_stream(self, scope: Scope) -> None:
        """Accept nothing behind this request, so that a client which hangs up is noticed at once."""
        self.pipeline.clear()
        self.cycle = next(cycle for cycle in self._unanswered if cycle.scope is scope)
        self.cycle.keep_alive = False
        self._is_streaming = True
        if self._awaited == "head":
            self._stop_timer()
            self._awaited = None
        self.flow.resume_reading()

    # -- responses to requests that are not complete ----------------------------------------------------

    def is_receiving(self, scope: Scope) -> bool:
        """Return whether a part of this request is still to arrive."""
        return self._awaited == "body" and self.cycle.scope is scope

    def close_after_response(self) -> None:
        """Close the connection after the response that has just been started with `connection: close`."""
        # uvicorn would close at once, which resets the connection while the client still sends
        self.cycle.keep_alive = True
        self._closes_after_response = True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._limits is not None and self.cycle.response_complete:
            self._limits.set_waiting(self, True)
        if self._closes_after_response and self.cycle.response_complete:
            self._drain()

    def _drain(self) -> None:
        """Send nothing more, drop what arrives, and close when the client does or after `DRAIN_S`."""
        if self.transport.is_closing():
            return
        self._is_draining = True
        self._unset_keepalive_if_required()
        self._stop_timer()
        self.flow.resume_reading()
        self.transport.write_eof()
        self._timer = self.loop.call_later(DRAIN_S, self.transport.abort)

    def abort_stream(self, last_frame: bytes) -> None:
        """End a streamed response whose client does not read, past the flow control that holds it back."""
        if self.transport.is_closing():
            return
        self._disconnect_all()
        self.transport.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(last_frame), last_frame))
        self.transport.close()
        self.loop.call_later(LINGER_S, self.transport.abort)


class ConnectionLimits:
    """The connections of one process: how many there may be, from one address and in all.

    Where one more would be too many, the one that has been waiting longest for a request is closed, so that
    slow clients do not keep others out.
    """

    def __init__(self, in_all: int, per_address: int) -> None:
        self._in_all = max(min(in_all, _open_files() - RESERVED_FILES), 1)
        self._per_address = per_address
        self._counts: Counter[str] = Counter()
        self._waiting: dict[HttpConnection, None] = {}
        self._waiting_by_address: defaultdict[str, dict[HttpConnection, None]] = defaultdict(dict)
        self._connections: set[HttpConnection] = set()

    def admit(self, connection: HttpConnection) -> bool:
        """Count a connection; False where there are too many, and none of them is waiting."""
        address = connection.address
        if address and self._counts[address] >= self._per_address:
            self._close_first(self._waiting_by_address[address])
        if len(self._connections) >= self._in_all:
            self._close_first(self._waiting)
        is_free = not address or self._counts[address] < self._per_address
        if not is_free or len(self._connections) >= self._in_all:
            return False
        self._connections.add(connection)
        self._counts[address] += 1
        self.set_waiting(connection, True)
        return True

    def set_waiting(self, connection: HttpConnection, is_waiting: bool) -> None:
        """Note whether a connection waits for a request, or for a part of one."""
        if connection not in self._connections:
            return
        for waiting in (self._waiting, self._waiting_by_address[connection.address]):
            waiting.pop(connection, None)
            if is_waiting:
                waiting[connection] = None

    def remove(self, connection: HttpConnection) -> None:
        """Forget a connection that is closed."""
        if connection not in self._connections:
            return
        self.set_waiting(connection, False)
        self._connections.discard(connection)
        self._counts[connection.address] -= 1
        if not self._counts[connection.address]:
            del self._counts[connection.address], self._waiting_by_address[connection.address]

    def _close_first(self, waiting: dict[HttpConnection, None]) -> None:
        first = next(iter(waiting), None)
        if first is not None:
            self.remove(first)
            first.transport.abort()


def _network(host: str) -> str:
    """Return the address that connections are counted by; of IPv6, the network that one client has."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return host if address.version == 4 else str(ip_network((address, 64), strict=False))


def _open_files() -> int:
    limit, _ = getrlimit(RLIMIT_NOFILE)
    return limit if limit != RLIM_INFINITY else sys.maxsize


def connection_of(scope: Any) -> HttpConnection | None:
    """Return the connection behind a request; None where another server runs the app."""
    connection = scope.get("extensions", {}).get(EXTENSION, {}).get("connection")
    return connection if isinstance(connection, HttpConnection) else None
