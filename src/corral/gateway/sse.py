"""The answer that goes on: a tail's bytes to one client until it ends, goes away, or stops reading."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from corral.gateway import frames
from corral.gateway.http_protocol import connection_of
from corral.gateway.settings import Settings
from corral.gateway.tails import Outlet, Tails

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class TailResponse(Response):
    """Server-sent events of one key, from a position on."""

    def __init__(
        self,
        tails: Tails,
        key: str,
        position: str,
        hello: bytes,
        settings: Settings,
        slot: AbstractContextManager[None],
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._tails = tails
        self._key = key
        self._position = position
        self._hello = hello
        self._settings = settings
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot, self._tails.joined(self._key, self._position) as outlet:
            line = Line(self._settings, scope, receive, send)
            if not await line.stream(outlet, self._hello, lambda: self._tails.look(self._key)):
                self._tails.cut += 1


class Line:
    """The way to one client of server-sent events."""

    def __init__(self, settings: Settings, scope: Scope, receive: Receive, send: Send) -> None:
        self._settings = settings
        self._receive = receive
        self._send = send
        self._connection = connection_of(scope)

    async def stream(self, outlet: Outlet, hello: bytes, make_protocol: Callable[[], None]) -> bool:
        """Send what comes through the outlet to its end; False where the client did not read and was cut."""
        watching = asyncio.create_task(self._watch(outlet))
        try:
            await self._start(hello)
            has_ended = False
            while not has_ended:
                await outlet.woken.wait()
                was_full, has_ended = outlet.is_full, outlet.has_ended
                chunk = outlet.take()
                if chunk:
                    await self._body(chunk)
                if was_full:
                    make_protocol()
            await self._body(b"", is_last=True)
        except TimeoutError:
            self._cut()
            return False
        finally:
            watching.cancel()
        return True

    async def _watch(self, outlet: Outlet) -> None:
        """End the outlet when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        outlet.end()

    async def _start(self, hello: bytes) -> None:
        async with asyncio.timeout(self._settings.stall_s):
            await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await self._body(hello)

    async def _body(self, chunk: bytes, is_last: bool = False) -> None:
        message = {"type": "http.response.body", "body": chunk, "more_body": not is_last}
        if self._connection is not None and not self._connection.flow.write_paused:
            # it is written at once, so there is nothing to wait for
            await self._send(message)
            return
        async with asyncio.timeout(self._settings.stall_s):
            await self._send(message)

    def _cut(self) -> None:
        """The client does not read: tell it, should it ever, and let go."""
        if self._connection is not None:
            reason = f"nothing was read for {self._settings.stall_s:g} s; come back with the last id"
            self._connection.cut(frames.own("gateway.cut", retry_ms=self._settings.retry_ms, reason=reason))
