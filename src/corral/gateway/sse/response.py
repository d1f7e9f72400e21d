"""TailResponse: server-sent events to one client until they end, it disconnects or it stops reading."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from corral.errors import RedisError
from corral.gateway.connection import HEAD, HttpConnection, connection_of
from corral.gateway.requests import BEGINNING
from corral.gateway.settings import GatewaySettings
from corral.gateway.sse.frames import SendBuffer, end_on_disconnect, gateway_frame
from corral.gateway.sse.hub import Tail, TailHub

NEW_KEYS_S = 2.0
"""How often a response looks for new keys."""

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class TailResponse(Response):
    """Server-sent events of some keys, each from a position on; `slot` is held meanwhile.

    With `list_keys`, the keys that it returns later are added.
    """

    _connection: HttpConnection | None

    def __init__(
        self,
        hub: TailHub,
        settings: GatewaySettings,
        hello: bytes,
        positions: Mapping[str, str],
        slot: ExitStack,
        list_keys: Callable[[], Awaitable[list[str]]] | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._hub = hub
        self._settings = settings
        self._hello = hello
        self._positions = positions
        self._slot = slot
        self._list_keys = list_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._connection = connection_of(scope)
        with self._slot:
            if HEAD in scope:
                await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
                await send({"type": "http.response.body", "body": b""})
                return
            if self._connection is not None:
                self._connection.begin_stream(scope)
            buffer = self._hub.new_buffer()
            tails = {key: self._hub.join(key, start, buffer) for key, start in self._positions.items()}
            tasks = [asyncio.create_task(end_on_disconnect(receive, buffer))]
            if self._list_keys is not None:
                tasks.append(asyncio.create_task(self._add_keys(tails, buffer)))
            try:
                await self._stream(buffer, tails, send)
            except TimeoutError:
                self._abort()
                self._hub.timed_out += 1
            finally:
                for task in tasks:
                    task.cancel()
                for tail in tails.values():
                    self._hub.leave(tail)

    async def _stream(self, buffer: SendBuffer, tails: Mapping[str, Tail], send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": list(HEADERS)}
        async with asyncio.timeout(self._settings.send_timeout_s):
            await send(start)
        await self._send_body(send, self._hello)
        has_ended = False
        while not has_ended:
            await buffer.changed.wait()
            was_full, has_ended = buffer.is_full, buffer.has_ended
            frames = buffer.take()
            if frames:
                await self._send_body(send, frames)
            if was_full:
                for key in tails:
                    self._hub.read_soon(key)
        await self._send_body(send, b"", is_last=True)

    async def _send_body(self, send: Send, frames: bytes, is_last: bool = False) -> None:
        message = {"type": "http.response.body", "body": frames, "more_body": not is_last}
        if self._connection is not None and not self._connection.flow.write_paused:
            # written at once, so that no timeout is needed
            await send(message)
            return
        async with asyncio.timeout(self._settings.send_timeout_s):
            await send(message)

    def _abort(self) -> None:
        """Close the connection of a client that does not read, with a last event."""
        if self._connection is not None:
            seconds, retry_ms = self._settings.send_timeout_s, self._settings.retry_ms
            reason = f"nothing was read for {seconds:g} s; reconnect with the last id"
            self._connection.abort_stream(gateway_frame("gateway.timeout", retry_ms=retry_ms, reason=reason))

    async def _add_keys(self, tails: dict[str, Tail], buffer: SendBuffer) -> None:
        while self._list_keys is not None:
            await asyncio.sleep(NEW_KEYS_S)
            with suppress(RedisError):
                for key in await self._list_keys():
                    if key not in tails:
                        tails[key] = self._hub.join(key, BEGINNING, buffer)
