"""A URL becomes a Store: calls, scripts and blocking lines, with errors of our own."""

from collections.abc import Sequence
from random import random
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from redis.asyncio.connection import Connection, parse_url

from corral.errors import Away, InvalidOptions
from corral.store.faults import UnknownScript
from corral.store.link import Link
from corral.store.scripts import Script

ANSWER_TIMEOUT_S = 10.0
OURS = ("protocol", "decode_responses", "retry", "retry_on_timeout", "client_name", "max_connections")
"""Options of an address that mean nothing here: the store decides them for itself."""


class Store:
    """One server as one event loop sees it.

    `redis://`, `rediss://` (TLS) and `unix://` addresses; options of redis-py after a `?`, such as
    `?socket_timeout=30`. Scripts may have run although their answer was lost, so no client here repeats a
    call by itself.

    >>> store = Store("redis://127.0.0.1:6379")
    >>> store.dialled
    'redis://127.0.0.1:6379'
    """

    def __init__(self, url: str, answer_timeout: float = ANSWER_TIMEOUT_S) -> None:
        self.url = url
        self.dialled = without_password(url)
        self._address = _address(url)
        self._answer_timeout: float = self._address.pop("socket_timeout", answer_timeout)
        self._link = Link(self._address, self.dialled, self._answer_timeout)

    def line(self, name: str, block_s: float) -> "Line":
        """A connection of its own, named `name`, for calls that block up to `block_s`."""
        return Line(Link(self._address, self.dialled, block_s + self._answer_timeout, name))

    async def call(self, *command: Any) -> Any:
        """The answer to one plain command."""
        return await self._link.call(*command)

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to several plain commands sent together, not as a transaction."""
        return await self._link.pipe(commands)

    async def run(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        """The answer to a script; the server is taught it first where it does not know it."""
        call = self._link.call
        try:
            return await call("EVALSHA", script.sha, len(keys), *keys, *args)
        except UnknownScript:
            # the script did not run, so sending it again cannot run it twice
            return await call("EVAL", script.text, len(keys), *keys, *args)

    async def run_together(
        self, script: Script, calls: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    ) -> list[Any]:
        """The answers to one script called with several (keys, args): nobody sees the server in between."""
        if not calls:
            return []
        rest = [("EVALSHA", script.sha, len(keys), *keys, *args) for keys, args in calls]
        try:
            return await self._link.transact(rest)
        except UnknownScript:
            # a server that does not know the script has run none of the calls; the first one teaches it
            keys, args = calls[0]
            return await self._link.transact([("EVAL", script.text, len(keys), *keys, *args), *rest[1:]])

    async def close(self) -> None:
        """Close every connection."""
        self._link.hang_up()


class Line:
    """A connection for one caller's blocking calls; opened when first used."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def call(self, *command: Any) -> Any:
        """The answer to one command; a call that fails or is cancelled leaves the line hung up."""
        try:
            return await self._link.call(*command)
        except BaseException:
            self._link.hang_up()
            raise

    async def hang_up(self) -> None:
        """Close the connection; the next call opens another."""
        self._link.hang_up()


def _address(url: str) -> dict[str, Any]:
    """What redis-py needs to dial `url`; refused here rather than at the first call where it is wrong."""
    try:
        address: dict[str, Any] = dict(parse_url(url))
        database = urlsplit(url).path.strip("/")
        if database and not url.startswith("unix:") and not database.isdecimal():
            raise ValueError(f"{database!r} is not the number of a database")
        if url.startswith("unix:") and not address.get("path"):
            raise ValueError("it has no path")
        options = {name: value for name, value in address.items() if name not in OURS}
        kind = options.pop("connection_class", Connection)
        kind(**options)
        return {**options, "connection_class": kind}
    except (ValueError, TypeError) as error:
        raise InvalidOptions(
            f"server address {without_password(url)!r} cannot be used: {error}; "
            f"write redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/socket"
        ) from None


def without_password(url: str) -> str:
    """The URL as it may be shown.

    >>> without_password("redis://me:secret@db:6379/0")
    'redis://me:***@db:6379/0'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("://")[0] + "://…"
    if parts.password is not None:
        host = parts.netloc.rpartition("@")[2]
        parts = parts._replace(netloc=f"{parts.username or ''}:***@{host}")
    query = parse_qsl(parts.query, keep_blank_values=True)
    if any("password" in name for name, _ in query):
        shown = [(name, "***" if "password" in name else value) for name, value in query]
        parts = parts._replace(query=urlencode(shown, safe="*/", quote_via=quote))
    # putting it together again would lose the empty host of unix:///path
    return url if parts == urlsplit(url) else urlunsplit(parts)


class Reconnect:
    """How long to wait before dialling again: 100 ms doubling to 30 s, ±20 %, without end by default."""

    def __init__(self, first_ms: int = 100, most_ms: int = 30_000, max_tries: int | None = None) -> None:
        self.first_ms = first_ms
        self.most_ms = most_ms
        self.max_tries = max_tries

    def delay(self, tries: int) -> float:
        """Seconds to wait after `tries` failed tries (the first is 0)."""
        return min(self.first_ms << min(tries, 32), self.most_ms) * (0.8 + 0.4 * random()) / 1000


async def first_contact(store: Store) -> None:
    """Return when the server answers; say what was dialled where it does not."""
    try:
        await store.call("PING")
    except Away as error:
        raise Away(
            f"no server at {store.dialled} ({error.__cause__ or error}); "
            f"start one there, or give another address by REDIS_URL or Corral(url)"
        ) from error
