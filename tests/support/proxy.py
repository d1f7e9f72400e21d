"""A small TCP proxy before a Redis server that can cut a connection at a chosen point of a command."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from threading import Event, Thread
from typing import NamedTuple, Self

import hiredis

Command = list[bytes]


class ProxyFault(Enum):
    """What becomes of a command."""

    CUT_BEFORE = "the server never sees it"
    CUT_INSIDE = "the server sees the first half of it"
    SWALLOW = "the server runs it and its reply is lost with the connection"
    CUT_REPLY = "the server runs it and the first half of its reply arrives"
    SILENCE = "the server runs it and no reply ever comes, on a connection that stays open"
    HELD = "the server runs it, and its reply and those after it wait for `let_go`"
    LATE = "the connection breaks, and the server sees it only when the client has gone on by another"


LATE_S = 0.3
"""How much later a late command reaches the server."""


@dataclass
class Rule:
    """Commands that match meet this fault, so many times."""

    matches: Callable[[Command], bool]
    fault: ProxyFault
    times: int
    shares: tuple[float, ...] = (0.5,)
    """How much of a command or reply that is cut still passes: one after the other, then from the start."""
    late_s: float = LATE_S
    """How much later a late command reaches the server."""
    met: int = 0


class CommandFault(NamedTuple):
    """One command's fault, and how much passes where it is to be cut."""

    fault: ProxyFault
    share: float
    late_s: float

    def cut(self, raw: bytes) -> bytes:
        """The part that passes: never all of it."""
        return raw[: min(int(len(raw) * self.share), len(raw) - 1)]


class Proxy:
    """Stands before the server on `port`; runs in a thread of its own, which no blocked test loop stops.

    >>> with Proxy(6379) as proxy:
    ...     proxy.rule(runs("EVALSHA"), ProxyFault.SWALLOW)
    """

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._rules: list[Rule] = []
        self._links: set[Link] = set()
        self._is_away = False
        self.released = asyncio.Event()
        self.commands: list[Command] = []
        """Every command that came, in order."""
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(5)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        self._cut_all()
        for _ in range(3):
            await asyncio.sleep(0)

    # -- for tests ----------------------------------------------------------------------------------------

    def rule(
        self,
        matches: Callable[[Command], bool],
        fault: ProxyFault,
        times: int = 1,
        shares: tuple[float, ...] = (0.5,),
        late_s: float = LATE_S,
    ) -> Rule:
        """Let the next `times` commands that match meet `fault`; `met` counts them."""
        rule = Rule(matches, fault, times, shares, late_s)
        self._rules.append(rule)
        return rule

    def cut(self) -> None:
        """Cut every connection now."""
        self._in_loop(self._cut_all)

    def go_away(self) -> None:
        """Cut every connection and refuse new ones until `come_back`."""
        self._is_away = True
        self.cut()

    def come_back(self) -> None:
        """Accept connections again."""
        self._is_away = False

    def let_go(self) -> None:
        """Let held replies pass, and those of commands that are still to be held."""
        self._in_loop(self.released.set)

    def count(self, matches: Callable[[Command], bool]) -> int:
        """How many commands that match have come."""
        return sum(map(matches, list(self.commands)))

    # -- inside -------------------------------------------------------------------------------------------

    def _in_loop(self, call: Callable[[], None]) -> None:
        done = Event()

        def run() -> None:
            call()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(5)

    def _cut_all(self) -> None:
        for link in list(self._links):
            link.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_away:
            writer.transport.abort()
            return
        link = Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run(self._upstream)
        finally:
            self._links.discard(link)

    def doom_of(self, command: Command) -> CommandFault | None:
        """Note a command and look up what becomes of it."""
        self.commands.append(command)
        for rule in self._rules:
            if rule.met < rule.times and rule.matches(command):
                share = rule.shares[rule.met % len(rule.shares)]
                rule.met += 1
                return CommandFault(rule.fault, share, rule.late_s)
        return None


class Link:
    """One client's connection and its own to the server."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._far_writer: asyncio.StreamWriter | None = None
        self._reply_doom: CommandFault | None = None
        self._has_answered = asyncio.Event()

    async def run(self, upstream: int) -> None:
        try:
            far_reader, self._far_writer = await asyncio.open_connection("127.0.0.1", upstream)
            pumps = [asyncio.create_task(self._requests()), asyncio.create_task(self._replies(far_reader))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass
        finally:
            self.cut()

    def cut(self) -> None:
        self._writer.transport.abort()
        if self._far_writer is not None:
            self._far_writer.transport.abort()

    async def _requests(self) -> None:
        parser = hiredis.Reader()
        while chunk := await self._reader.read(65536):
            parser.feed(chunk)
            while (command := parser.gets()) is not False:
                if not await self._forward(command):
                    return

    async def _forward(self, command: Command) -> bool:
        assert self._far_writer is not None
        raw = b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in command)
        command_fault = self._proxy.doom_of(command)
        match command_fault:
            case CommandFault(ProxyFault.CUT_BEFORE):
                return False
            case CommandFault(ProxyFault.CUT_INSIDE):
                self._far_writer.write(command_fault.cut(raw))
                await self._far_writer.drain()
                return False
            case CommandFault(ProxyFault.LATE):
                self._writer.transport.abort()
                await asyncio.sleep(command_fault.late_s)
        if command_fault is not None:
            self._reply_doom = command_fault
        self._far_writer.write(raw)
        await self._far_writer.drain()
        if command_fault is not None and command_fault.fault is ProxyFault.LATE:
            await self._has_answered.wait()
            return False
        return True

    async def _replies(self, far_reader: asyncio.StreamReader) -> None:
        while chunk := await far_reader.read(65536):
            command_fault = self._reply_doom
            match command_fault:
                case CommandFault(ProxyFault.SWALLOW | ProxyFault.LATE):
                    self._has_answered.set()
                    return
                case CommandFault(ProxyFault.SILENCE):
                    continue
                case CommandFault(ProxyFault.HELD):
                    await self._proxy.released.wait()
                case CommandFault(ProxyFault.CUT_REPLY):
                    self._writer.write(command_fault.cut(chunk))
                    await self._writer.drain()
                    return
            self._writer.write(chunk)
            await self._writer.drain()


def runs(name: str) -> Callable[[Command], bool]:
    """Matches one plain command by its name."""
    return lambda command: command[0].upper() == name.encode()


def runs_script(sha: str) -> Callable[[Command], bool]:
    """Matches calls of one script by its hash."""
    return lambda command: command[0].upper() == b"EVALSHA" and command[1] == sha.encode()
