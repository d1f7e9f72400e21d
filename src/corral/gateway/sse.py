"""The answer that goes on: a tail's bytes to one client until it ends, goes away, or stops reading."""

import asyncio
from contextlib import AbstractContextManager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from corral.gateway import frames
from corral.gateway.protocol import connection_of
from corral.gateway.settings import Settings
from corral.gateway.tails import Tail, Tails

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
        with self._slot, self._tails.joined(self._key, self._position) as tail:
            watching = asyncio.create_task(_watch(receive, tail))
            try:
                await self._send_all(tail, send)
            except TimeoutError:
                self._cut(scope)
            finally:
                watching.cancel()

    async def _send_all(self, tail: Tail, send: Send) -> None:
        stall_s = self._settings.stall_s
        async with asyncio.timeout(stall_s):
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
            await send({"type": "http.response.body", "body": self._hello, "more_body": True})
        has_ended = False
        while not has_ended:
            await self._news(tail)
            was_full, has_ended = tail.is_full, tail.has_ended
            chunk = tail.take()
            if chunk:
                async with asyncio.timeout(stall_s):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if was_full:
                self._tails.look(tail.key)
        async with asyncio.timeout(stall_s):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _news(self, tail: Tail) -> None:
        """Wait for something to send; after a while a heartbeat is."""
        if tail.woken.is_set():
            return
        try:
            async with asyncio.timeout(self._settings.heartbeat_s):
                await tail.woken.wait()
        except TimeoutError:
            tail.push(frames.HEARTBEAT)

    def _cut(self, scope: Scope) -> None:
        """The client does not read: tell it, should it ever, and let go."""
        self._tails.cut += 1
        connection = connection_of(scope)
        if connection is not None:
            reason = f"nothing was read for {self._settings.stall_s:g} s; come back with the last id"
            connection.cut(frames.own("gateway.cut", retry_ms=self._settings.retry_ms, reason=reason))


async def _watch(receive: Receive, tail: Tail) -> None:
    """End the tail when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    tail.end()
