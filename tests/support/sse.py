"""A client of server-sent events on a real socket, written from the EventSource standard."""

import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import orjson


@dataclass(frozen=True)
class Event:
    """One event as the standard dispatches it."""

    id: str
    kind: str
    data: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.data)


@dataclass
class Parser:
    """Bytes in, events out; comments and retry hints are kept."""

    last_id: str = ""
    retries: list[int] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    _rest: bytes = b""
    _kind: str = ""
    _data: list[str] = field(default_factory=list)
    _id: str | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        events = []
        self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode()
            if line:
                self._take(line)
                continue
            if self._id is not None:
                self.last_id = self._id
            if self._data:
                events.append(Event(self.last_id, self._kind or "message", "\n".join(self._data)))
            self._kind, self._data, self._id = "", [], None
        return events

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "":
                self.comments.append(value)
            case "event":
                self._kind = value
            case "data":
                self._data.append(value)
            case "id":
                self._id = value
            case "retry":
                self.retries.append(int(value))


class Tail:
    """A tail over a socket of its own.

    >>> with Tail(url, "/v1/jobs/…/events") as tail:
    ...     kinds = [event.kind for event in tail]
    """

    def __init__(
        self,
        url: str,
        path: str,
        last_id: str = "",
        seconds: float = 10.0,
        headers: dict[str, str] | None = None,
    ) -> None:
        host, port = urlsplit(url).hostname or "", urlsplit(url).port or 80
        self.socket = socket.create_connection((host, port), timeout=seconds)
        more = {"Last-Event-ID": last_id} if last_id else {}
        head = {"Host": f"{host}:{port}", "Accept": "text/event-stream", **more, **(headers or {})}
        text = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        self.socket.sendall(f"GET {path} HTTP/1.1\r\n{text}\r\n".encode())
        self.parser = Parser(last_id)
        self.deadline = time.monotonic() + seconds
        self._raw = b""
        self._last_id = last_id
        self._events: deque[Event] = deque()
        self._has_ended = False
        self.status, self.headers = self._read_head()

    def _read_head(self) -> tuple[int, dict[str, str]]:
        while b"\r\n\r\n" not in self._raw:
            self._receive()
        head, _, self._raw = self._raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        if "content-length" in headers or first.split()[1] == "204":
            length = int(headers.get("content-length", 0))
            while len(self._raw) < length:
                self._receive()
            self._has_ended = True
        return int(first.split()[1]), headers

    @property
    def body(self) -> bytes:
        """The body of a response that is not a stream."""
        return self._raw

    def _receive(self) -> None:
        self.socket.settimeout(max(self.deadline - time.monotonic(), 0.001))
        chunk = self.socket.recv(65_536)
        if not chunk:
            raise EOFError("the connection was closed")
        self._raw += chunk

    def _chunk(self) -> bytes:
        """One chunk of the body; empty at its end."""
        while b"\r\n" not in self._raw:
            self._receive()
        size, _, self._raw = self._raw.partition(b"\r\n")
        length = int(size, 16)
        while len(self._raw) < length + 2:
            self._receive()
        chunk, self._raw = self._raw[:length], self._raw[length + 2 :]
        return chunk

    def __iter__(self) -> Iterator[Event]:
        """Events until the server ends the stream; EOFError where the connection breaks instead."""
        while self._events or not self._has_ended:
            # the rest of a chunk is kept for the next iteration, should this one end early
            while self._events:
                event = self._events.popleft()
                self._last_id = event.id
                yield event
            if not self._has_ended:
                chunk = self._chunk()
                self._has_ended = not chunk
                self._events += self.parser.feed(chunk)

    def until(self, *kinds: str) -> list[Event]:
        """Events up to the first of one of these kinds."""
        events = []
        for event in self:
            events.append(event)
            if event.kind in kinds:
                return events
        raise AssertionError(f"the stream ended without {kinds}: {[event.kind for event in events]}")

    @property
    def last_id(self) -> str:
        """Of the last event that was handed out."""
        return self._last_id

    def kill(self) -> None:
        """Reset the connection, as a crashed client does."""
        with suppress(OSError):
            # a zero linger sends a reset instead of a FIN
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


def job_events(events: list[Event]) -> list[Event]:
    """Return the job's own events, without `hello` and the gateway's."""
    return [event for event in events if event.kind != "hello" and not event.kind.startswith("gateway.")]
