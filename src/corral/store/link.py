"""Link: one connection that many calls share.

Calls go out as they come and answers are matched to them in order, so calls made together travel together.
A call costs a fifth of what redis-py's client takes for it, which is most of a small job's way; redis-py
still reads addresses and makes TLS contexts. See docs/adr/0010-a-link-of-our-own.md.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import hiredis
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection

from corral.errors import Away
from corral.store.faults import fault_of_error, fault_of_text

CONNECT_TIMEOUT_S = 5.0


class Answer(Exception):
    """An error the server answered with; its text is the server's."""


class Link:
    """Dials when first used and after a break; a break fails every call that is under way.

    No call is repeated here: it may have run although its answer was lost.
    """

    def __init__(self, address: dict[str, Any], dialled: str, timeout: float, name: str = "") -> None:
        self._address = address
        self._dialled = dialled
        self._timeout = timeout
        self._name = name
        self._wire: _Wire | None = None
        self._dialling = asyncio.Lock()

    async def call(self, *command: Any) -> Any:
        """The server's answer: bytes, integers, lists; an error of its is raised as one of ours."""
        wire = self._wire
        if wire is None or wire.is_broken:
            wire = await self._dial()
        try:
            return await wire.send(hiredis.pack_command(command))
        except Answer as answer:
            raise fault_of_text(str(answer), self._dialled) from None

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to several commands sent together; the first that failed is raised."""
        if not commands:
            return []
        wire = self._wire
        if wire is None or wire.is_broken:
            wire = await self._dial()
        calls = wire.send_all([hiredis.pack_command(tuple(command)) for command in commands])
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Answer):
                raise fault_of_text(str(answer), self._dialled)
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def transact(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to several commands that run as one; the first that failed is raised."""
        # they leave in one piece, so no other call of this connection gets between MULTI and EXEC
        answers: list[Any] = (await self.pipe([("MULTI",), *commands, ("EXEC",)]))[-1]
        for answer in answers:
            if isinstance(answer, Answer):
                raise fault_of_text(str(answer), self._dialled)
        return answers

    def hang_up(self) -> None:
        """Close the connection; the next call dials again."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.cut(Away(f"{self._dialled}: the connection was closed here"))

    async def _dial(self) -> "_Wire":
        async with self._dialling:
            if self._wire is not None and not self._wire.is_broken:
                return self._wire
            try:
                async with asyncio.timeout(self._address.get("socket_connect_timeout", CONNECT_TIMEOUT_S)):
                    wire = await self._open()
                    await self._greet(wire)
            except (OSError, EOFError, TimeoutError) as error:
                if isinstance(error, Away):
                    raise
                raise fault_of_error(error, self._dialled) from error
            self._wire = wire
            return wire

    async def _open(self) -> "_Wire":
        loop, address = asyncio.get_running_loop(), self._address

        def make() -> _Wire:
            return _Wire(loop, self._dialled, self._timeout)

        if issubclass(address["connection_class"], UnixDomainSocketConnection):
            _, wire = await loop.create_unix_connection(make, address["path"])
            return wire
        host, port = address.get("host", "localhost"), address.get("port", 6379)
        if issubclass(address["connection_class"], SSLConnection):
            options = {name: value for name, value in address.items() if name.startswith("ssl_")}
            context = SSLConnection(**options).ssl_context.get()
            _, wire = await loop.create_connection(make, host, port, ssl=context)
            return wire
        _, wire = await loop.create_connection(make, host, port)
        return wire

    async def _greet(self, wire: "_Wire") -> None:
        """Say who we are and which database is meant."""
        address = self._address
        words: list[tuple[Any, ...]] = []
        if address.get("password"):
            user = (address["username"],) if address.get("username") else ()
            words.append(("AUTH", *user, address["password"]))
        if address.get("db"):
            words.append(("SELECT", address["db"]))
        if self._name:
            words.append(("CLIENT", "SETNAME", self._name))
        try:
            for word in words:
                await wire.send(hiredis.pack_command(word))
        except BaseException as error:
            # a refusal, or no answer in time: without this each try would leave a connection behind
            wire.cut(Away(self._dialled))
            if isinstance(error, Answer):
                raise fault_of_text(str(error), self._dialled) from None
            raise


class _Wire(asyncio.Protocol):
    """The bytes: written at once, read into whole answers, each given to the call that waits longest."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dialled: str, timeout: float) -> None:
        self.is_broken = False
        self._loop = loop
        self._dialled = dialled
        self._timeout = timeout
        self._reader = hiredis.Reader(replyError=Answer)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._answered = 0
        self._watch: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # not asserted: uvloop's transports keep to the interface and are no subclass of it
        self._transport = cast(asyncio.Transport, transport)

    def send(self, packed: bytes) -> "asyncio.Future[Any]":
        """The answer to a packed command, when it comes."""
        return self.send_all([packed])[0]

    def send_all(self, packed: Sequence[bytes]) -> "list[asyncio.Future[Any]]":
        """The answers to packed commands that travel together."""
        if self.is_broken:
            raise Away(f"{self._dialled}: the connection is broken")
        futures = [self._loop.create_future() for _ in packed]
        self._waiting.extend(futures)
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout, self._look, self._answered)
        self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))
        return futures

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while (answer := reader.gets()) is not False:
                self._answered += 1
                future = waiting.popleft()
                if future.done():
                    continue  # its caller went away
                if type(answer) is Answer:
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        except (hiredis.ProtocolError, IndexError) as error:
            self.cut(Away(f"{self._dialled}: what came back is not Redis's protocol ({error})"))

    def _look(self, answered: int) -> None:
        """Once in a timeout: are answers still coming? One timer for all calls, however many there are."""
        self._watch = None
        if not self._waiting:
            return
        if self._answered == answered:
            self.cut(Away(f"{self._dialled}: no answer within {self._timeout:g} s"))
        else:
            self._watch = self._loop.call_later(self._timeout, self._look, self._answered)

    def cut(self, why: Away) -> None:
        """Fail every call that is under way, and close."""
        self.is_broken = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        waiting = self._waiting
        while waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_exception(why)
        self._transport.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        what = f"the connection was lost ({error})" if error else "the server closed the connection"
        self.cut(Away(f"{self._dialled}: {what}"))
