"""Connection: one connection that many calls share.

Commands are sent as they come and replies are matched to them in order, so calls made together travel
together. A call costs a fifth of what redis-py's client takes for it, which is most of a small job's time;
redis-py still parses addresses and makes TLS contexts. See docs/adr/0008-own-connection.md.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import hiredis

from corral.errors import RedisConnectionError, RedisError, RedisReadOnlyError
from corral.store.errors import connect_error, error_from_reply, with_cluster_hint

CONNECT_TIMEOUT_S = 5.0


class ErrorReply(Exception):
    """An error reply, with the server's text."""


class Resolver(Protocol):
    """Finds the server before each connect."""

    needs_master: bool
    """Whether the server must confirm that it is a master."""

    async def resolve(self) -> Mapping[str, Any]:
        """Return redis-py's connection options for the server."""
        ...


class StaticResolver:
    """A server whose address does not change."""

    needs_master = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    async def resolve(self) -> Mapping[str, Any]:
        return self._options


class Connection:
    """Connects when first used and after it was lost; a loss fails every call under way.

    No call is repeated: it may have run although its reply was lost.
    """

    def __init__(
        self, resolver: Resolver, address: str, timeout: float, name: str = "", *, is_single: bool = True
    ) -> None:
        self._resolver = resolver
        self._address = address
        self._timeout = timeout
        self._name = name
        self._is_single = is_single
        """Whether it is the only server, with no other to redirect a call to."""
        self._socket: _Socket | None = None
        self._connecting = asyncio.Lock()

    async def call(self, *command: Any) -> Any:
        """Return the reply: bytes, integers, lists; an error reply is raised as one of Corral's errors."""
        socket = self._socket
        if socket is None or socket.is_closed:
            socket = await self._connect()
        try:
            return await socket.send(hiredis.pack_command(command))
        except ErrorReply as reply:
            raise self._error(reply) from None

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the replies to commands sent together; the first error among them is raised."""
        if not commands:
            return []
        socket = self._socket
        if socket is None or socket.is_closed:
            socket = await self._connect()
        calls = socket.send_all([hiredis.pack_command(tuple(command)) for command in commands])
        replies = await asyncio.gather(*calls, return_exceptions=True)
        for reply in replies:
            if isinstance(reply, ErrorReply):
                raise self._error(reply)
            if isinstance(reply, BaseException):
                raise reply
        return replies

    async def pipe_to(self, key: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the same replies; the key says which server they are for, where there are several."""
        return await self.pipe(commands)

    async def transact(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the replies to commands run in a transaction; the first error among them is raised."""
        # they are sent in one piece, so no other call of this connection gets between MULTI and EXEC
        replies: list[Any] = (await self.pipe([("MULTI",), *commands, ("EXEC",)]))[-1]
        for reply in replies:
            if isinstance(reply, ErrorReply):
                raise self._error(reply)
        return replies

    def _error(self, reply: ErrorReply) -> RedisError:
        error = error_from_reply(str(reply), self._address)
        if isinstance(error, RedisReadOnlyError):
            # another server is the master now: the next call looks for it
            self.disconnect()
        return with_cluster_hint(error) if self._is_single else error

    def disconnect(self) -> None:
        """Close the connection; the next call connects again."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close(RedisConnectionError(f"{self._address}: the connection was closed by this process"))

    async def _connect(self) -> "_Socket":
        async with self._connecting:
            if self._socket is not None and not self._socket.is_closed:
                return self._socket
            try:
                options = await self._resolver.resolve()
                async with asyncio.timeout(options.get("socket_connect_timeout", CONNECT_TIMEOUT_S)):
                    socket = await self._open(options)
                    await self._set_up(socket, options)
            except (OSError, EOFError, TimeoutError) as error:
                if isinstance(error, RedisConnectionError):
                    raise
                raise connect_error(error, self._address) from error
            self._socket = socket
            return socket

    async def _open(self, options: Mapping[str, Any]) -> "_Socket":
        from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection

        loop = asyncio.get_running_loop()

        def new_socket() -> _Socket:
            return _Socket(loop, self._address, self._timeout)

        connection_class = options["connection_class"]
        if issubclass(connection_class, UnixDomainSocketConnection):
            _, socket = await loop.create_unix_connection(new_socket, options["path"])
            return socket
        context = None
        if issubclass(connection_class, SSLConnection):
            ssl_options = {name: value for name, value in options.items() if name.startswith("ssl_")}
            context = SSLConnection(**ssl_options).ssl_context.get()
        host, port = options.get("host", "localhost"), options.get("port", 6379)
        _, socket = await loop.create_connection(new_socket, host, port, ssl=context)
        return socket

    async def _set_up(self, socket: "_Socket", options: Mapping[str, Any]) -> None:
        """Log in, select the database, set the client's name, and check the server's role."""
        commands: list[tuple[Any, ...]] = []
        if options.get("password"):
            user = (options["username"],) if options.get("username") else ()
            commands.append(("AUTH", *user, options["password"]))
        if options.get("db"):
            commands.append(("SELECT", options["db"]))
        if self._name:
            commands.append(("CLIENT", "SETNAME", self._name))
        try:
            for command in commands:
                await socket.send(hiredis.pack_command(command))
            if self._resolver.needs_master:
                role = await socket.send(hiredis.pack_command(("ROLE",)))
                if role[0] != b"master":
                    raise RedisReadOnlyError(f"{self._address}: its master has become a {role[0].decode()}")
        except BaseException as error:
            # an error reply, or none in time: without this each try would leave a connection open
            socket.close(RedisConnectionError(self._address))
            if isinstance(error, ErrorReply):
                raise error_from_reply(str(error), self._address) from None
            raise


class _Socket(asyncio.Protocol):
    """Commands written at once, and each whole reply given to the call that waits longest."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str, timeout: float) -> None:
        self.is_closed = False
        self._loop = loop
        self._address = address
        self._timeout = timeout
        self._reader = hiredis.Reader(replyError=ErrorReply)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._replies = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # not asserted: uvloop's transports have the interface without being a subclass
        self._transport = cast(asyncio.Transport, transport)

    def send(self, packed: bytes) -> "asyncio.Future[Any]":
        """Send a packed command; return the future of its reply."""
        return self.send_all([packed])[0]

    def send_all(self, packed: Sequence[bytes]) -> "list[asyncio.Future[Any]]":
        """Send packed commands in one piece; return the futures of their replies."""
        if self.is_closed:
            raise RedisConnectionError(f"{self._address}: the connection is broken")
        futures = [self._loop.create_future() for _ in packed]
        self._waiting.extend(futures)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._check_timeout, self._replies)
        self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))
        return futures

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not False:
                self._replies += 1
                future = waiting.popleft()
                if future.done():
                    continue  # its caller was cancelled
                if type(reply) is ErrorReply:
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self.close(RedisConnectionError(f"{self._address}: the reply is not Redis's protocol ({error})"))

    def _check_timeout(self, replies_before: int) -> None:
        """Close the connection if no reply came within a timeout; one timer serves all calls."""
        self._timer = None
        if not self._waiting:
            return
        if self._replies == replies_before:
            self.close(RedisConnectionError(f"{self._address}: no reply within {self._timeout:g} s"))
        else:
            self._timer = self._loop.call_later(self._timeout, self._check_timeout, self._replies)

    def close(self, error: RedisConnectionError) -> None:
        """Fail every call under way with `error`, and close."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = self._waiting
        while waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_exception(error)
        self._transport.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        reason = f"the connection was lost ({error})" if error else "the server closed the connection"
        self.close(RedisConnectionError(f"{self._address}: {reason}"))
