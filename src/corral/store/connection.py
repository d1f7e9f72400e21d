"""Connection: one connection that many calls share.

Calls go out as they come and answers are matched to them in order, so calls made together travel together.
A call costs a fifth of what redis-py's client takes for it, which is most of a small job's way; redis-py
still reads addresses and makes TLS contexts. See docs/adr/0010-a-connection-of-our-own.md.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import hiredis
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection

from corral.errors import RedisConnectionError, RedisError, RedisReadOnlyError
from corral.store.errors import connect_error, error_from_reply, with_cluster_hint

CONNECT_TIMEOUT_S = 5.0


class Answer(Exception):
    """An error the server answered with; its text is the server's."""


class Where(Protocol):
    """Who knows what to dial; asked anew each time."""

    needs_master: bool
    """Must the server say of itself that it is one?"""

    async def find(self) -> Mapping[str, Any]:
        """What redis-py needs to dial it, as things stand now."""
        ...


class Fixed:
    """A server that is always where it was."""

    needs_master = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    async def find(self) -> Mapping[str, Any]:
        return self._options


class Connection:
    """Dials when first used and after a break; a break fails every call that is under way.

    No call is repeated here: it may have run although its answer was lost.
    """

    def __init__(
        self, where: Where, dialled: str, timeout: float, name: str = "", *, is_alone: bool = True
    ) -> None:
        self._where = where
        self._dialled = dialled
        self._timeout = timeout
        self._name = name
        self._is_alone = is_alone
        """Is there no other server that a call could be sent on to?"""
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
            raise self._fault(answer) from None

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
                raise self._fault(answer)
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def transact(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to several commands that run as one; the first that failed is raised."""
        # they leave in one piece, so no other call of this connection gets between MULTI and EXEC
        answers: list[Any] = (await self.pipe([("MULTI",), *commands, ("EXEC",)]))[-1]
        for answer in answers:
            if isinstance(answer, Answer):
                raise self._fault(answer)
        return answers

    def _fault(self, answer: Answer) -> RedisError:
        fault = error_from_reply(str(answer), self._dialled)
        if isinstance(fault, RedisReadOnlyError):
            # another server is the master now: it is looked for at the next call
            self.disconnect()
        return with_cluster_hint(fault) if self._is_alone else fault

    def disconnect(self) -> None:
        """Close the connection; the next call dials again."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.cut(RedisConnectionError(f"{self._dialled}: the connection was closed here"))

    async def _dial(self) -> "_Wire":
        async with self._dialling:
            if self._wire is not None and not self._wire.is_broken:
                return self._wire
            try:
                options = await self._where.find()
                async with asyncio.timeout(options.get("socket_connect_timeout", CONNECT_TIMEOUT_S)):
                    wire = await self._open(options)
                    await self._greet(wire, options)
            except (OSError, EOFError, TimeoutError) as error:
                if isinstance(error, RedisConnectionError):
                    raise
                raise connect_error(error, self._dialled) from error
            self._wire = wire
            return wire

    async def _open(self, options: Mapping[str, Any]) -> "_Wire":
        loop = asyncio.get_running_loop()

        def make() -> _Wire:
            return _Wire(loop, self._dialled, self._timeout)

        if issubclass(options["connection_class"], UnixDomainSocketConnection):
            _, wire = await loop.create_unix_connection(make, options["path"])
            return wire
        host, port = options.get("host", "localhost"), options.get("port", 6379)
        if issubclass(options["connection_class"], SSLConnection):
            given = {name: value for name, value in options.items() if name.startswith("ssl_")}
            context = SSLConnection(**given).ssl_context.get()
            _, wire = await loop.create_connection(make, host, port, ssl=context)
            return wire
        _, wire = await loop.create_connection(make, host, port)
        return wire

    async def _greet(self, wire: "_Wire", options: Mapping[str, Any]) -> None:
        """Say who we are and which database is meant; make sure of whom we speak to."""
        words: list[tuple[Any, ...]] = []
        if options.get("password"):
            user = (options["username"],) if options.get("username") else ()
            words.append(("AUTH", *user, options["password"]))
        if options.get("db"):
            words.append(("SELECT", options["db"]))
        if self._name:
            words.append(("CLIENT", "SETNAME", self._name))
        try:
            for word in words:
                await wire.send(hiredis.pack_command(word))
            if self._where.needs_master:
                role = await wire.send(hiredis.pack_command(("ROLE",)))
                if role[0] != b"master":
                    raise RedisReadOnlyError(f"{self._dialled}: its master has become a {role[0].decode()}")
        except BaseException as error:
            # a refusal, or no answer in time: without this each try would leave a connection behind
            wire.cut(RedisConnectionError(self._dialled))
            if isinstance(error, Answer):
                raise error_from_reply(str(error), self._dialled) from None
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
            raise RedisConnectionError(f"{self._dialled}: the connection is broken")
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
            self.cut(
                RedisConnectionError(f"{self._dialled}: what came back is not Redis's protocol ({error})")
            )

    def _look(self, answered: int) -> None:
        """Once in a timeout: are answers still coming? One timer for all calls, however many there are."""
        self._watch = None
        if not self._waiting:
            return
        if self._answered == answered:
            self.cut(RedisConnectionError(f"{self._dialled}: no answer within {self._timeout:g} s"))
        else:
            self._watch = self._loop.call_later(self._timeout, self._look, self._answered)

    def cut(self, why: RedisConnectionError) -> None:
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
        self.cut(RedisConnectionError(f"{self._dialled}: {what}"))
