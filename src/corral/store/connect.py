"""A URL becomes a Store: clients, script calls, and errors of our own."""

from collections.abc import Sequence
from contextlib import suppress
from random import random
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from corral.errors import Away, InvalidOptions, StoreFault
from corral.store.faults import translating
from corral.store.scripts import Script

ANSWER_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
OURS = ("protocol", "decode_responses", "retry", "retry_on_timeout", "client_name", "max_connections")
"""What the store decides for itself, whatever the address says."""


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
        self.client = self._client(socket_timeout=self._answer_timeout)

    def _client(self, is_single: bool = False, **options: Any) -> Redis:
        pool = ConnectionPool(
            **{"socket_connect_timeout": CONNECT_TIMEOUT_S, **self._address},
            **options,
            protocol=2,
            decode_responses=False,
            retry_on_timeout=False,
            retry=Retry(NoBackoff(), 0),
        )
        client: Redis = Redis(connection_pool=pool, single_connection_client=is_single)
        # answers reach the codecs as the server gave them: bytes, integers, lists
        client.response_callbacks.clear()
        return client

    def blocking(self, name: str, block_s: float) -> Redis:
        """A client with one connection of its own, named `name`, for calls that block up to `block_s`."""
        return self._client(is_single=True, client_name=name, socket_timeout=block_s + self._answer_timeout)

    def line(self, name: str, block_s: float) -> "Line":
        """A connection of its own, named `name`, for calls that block up to `block_s`."""
        return Line(self, name, block_s)

    async def call(self, *command: Any) -> Any:
        """The answer to one plain command."""
        with translating(self.dialled):
            return await _execute(self.client, *command)

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to several plain commands sent together, not as a transaction."""
        with translating(self.dialled):
            pipeline = self.client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            # raised by redis-py, an error would quote the command, and with it the data of a job
            answers = list(await pipeline.execute(raise_on_error=False))
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            return answers

    async def run(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        """The answer to a script; the server is taught it first where it does not know it."""
        with translating(self.dialled):
            call = ("EVALSHA", script.sha, len(keys), *keys, *args)
            try:
                return await _execute(self.client, *call)
            except NoScriptError:
                # the script did not run, so sending it again cannot run it twice
                return await _execute(self.client, "EVAL", script.text, *call[2:])

    async def close(self) -> None:
        """Close every connection; a server that is away already is not an error."""
        await _quietly(self.client)


class Line:
    """A connection for one caller's blocking calls; opened when first used."""

    def __init__(self, store: Store, name: str, block_s: float) -> None:
        self._store = store
        self._name = name
        self._block_s = block_s
        self._client: Redis | None = None

    async def call(self, *command: Any) -> Any:
        """The answer to one command; a call that fails or is cancelled leaves the line hung up."""
        if self._client is None:
            self._client = self._store.blocking(self._name, self._block_s)
        try:
            with translating(self._store.dialled):
                return await _execute(self._client, *command)
        except BaseException:
            await self.hang_up()
            raise

    async def hang_up(self) -> None:
        """Close the connection; the next call opens another."""
        client, self._client = self._client, None
        if client is not None:
            await _quietly(client)


async def _quietly(client: Redis) -> None:
    with suppress(StoreFault, OSError):
        await client.aclose(close_connection_pool=True)


async def _execute(client: Any, *command: Any) -> Any:
    return await client.execute_command(*command)



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
