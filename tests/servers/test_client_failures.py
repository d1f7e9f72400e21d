"""Failures as they really come: through HTTP clients, from SQLite, from a Redis server."""

import asyncio
import socket
import sqlite3
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import httpx
import pytest
import redis
import requests
from redis.backoff import NoBackoff
from redis.retry import Retry

from corral.core.known_errors import FailureKind
from corral.core.retry import classify

TRANSIENT, PERMANENT = FailureKind.TRANSIENT, FailureKind.PERMANENT


def raised(fn: Any, *arguments: Any) -> BaseException:
    """What a call really raises."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        fn(*arguments)
    return caught.value


# -- HTTP, from real servers through real clients


class Replies(BaseHTTPRequestHandler):
    """Answers `/503` with 503, and breaks the line in three ways."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        word = self.path.strip("/")
        if word == "silent":
            self.server.released.wait(10)  # type: ignore[attr-defined]
        elif word == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")
        elif word == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        else:
            self.send_response(int(word))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), Replies)
    server.released = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.released.set()  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()
    thread.join()


def get_with_httpx(address: str) -> None:
    httpx.get(address, timeout=0.3, trust_env=False).raise_for_status()


def get_with_requests(address: str) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.get(address, timeout=0.3).raise_for_status()


def get_with_aiohttp(address: str) -> None:
    async def get() -> None:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.3)) as session,
            session.get(address, raise_for_status=True) as response,
        ):
            await response.read()

    asyncio.run(get())


def get_with_urllib(address: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=0.3) as response:
        response.read()


CLIENTS = [get_with_httpx, get_with_requests, get_with_aiohttp, get_with_urllib]
STATUSES = {
    **dict.fromkeys((500, 502, 503, 504), TRANSIENT),
    # these three speak of the moment, not of the request
    **dict.fromkeys((408, 425, 429), TRANSIENT),
    **dict.fromkeys((400, 401, 403, 404, 405, 409, 410, 422, 451), PERMANENT),
}


@pytest.mark.parametrize("get", CLIENTS)
@pytest.mark.parametrize(("status", "verdict"), STATUSES.items())
def test_an_http_status_decides_with_every_client(
    site: str, get: Any, status: int, verdict: FailureKind
) -> None:
    assert classify(raised(get, f"{site}/{status}")) is verdict


@pytest.mark.parametrize("get", CLIENTS)
@pytest.mark.parametrize("fault", ["silent", "cut", "reset"])
def test_a_line_that_breaks_under_a_request_is_transient(site: str, get: Any, fault: str) -> None:
    assert classify(raised(get, f"{site}/{fault}")) is TRANSIENT


@pytest.mark.parametrize("get", CLIENTS)
def test_a_refused_connection_is_transient(get: Any) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert classify(raised(get, f"http://127.0.0.1:{closed.getsockname()[1]}/")) is TRANSIENT


@pytest.mark.parametrize("get", CLIENTS)
def test_an_address_that_is_none_is_permanent(get: Any) -> None:
    assert classify(raised(get, "gopher//nowhere")) is PERMANENT


# -- databases and Redis, as they really fail


def test_sqlite_is_transient_only_where_waiting_helps(tmp_path: Any) -> None:
    opened = [sqlite3.connect(tmp_path / "a.db", timeout=0) for _ in range(2)]
    with closing(opened[0]) as holder, closing(opened[1]) as other:
        holder.execute("create table t (id integer primary key)")
        holder.execute("insert into t values (1)")
        locked = raised(other.execute, "insert into t values (2)")
        missing = raised(holder.execute, "select * from nowhere")
        doubled = raised(holder.execute, "insert into t values (1)")
    assert str(locked) == "database is locked"
    assert [classify(error) for error in (locked, missing, doubled)] == [TRANSIENT, PERMANENT, PERMANENT]
    # bad SQL and a lock are the same class: the code inside tells them apart
    assert type(locked) is type(missing)


def test_a_real_transaction_conflict_in_redis_is_transient(server: Any) -> None:
    with server.connect() as client, client.pipeline() as pipe:
        pipe.watch("balance")
        client.set("balance", 1)
        pipe.multi()
        pipe.set("balance", 2)
        assert classify(raised(pipe.execute)) is TRANSIENT


def test_redis_errors_that_come_again_are_permanent(server: Any) -> None:
    intruder = redis.Redis(port=server.port, username="nobody", password="wrong", retry=Retry(NoBackoff(), 0))
    with server.connect() as client, intruder:
        client.set("text", "x")
        wrong_type = raised(client.lpush, "text", 1)
        wrong_password = raised(intruder.ping)
    assert isinstance(wrong_password, redis.AuthenticationError)
    assert [classify(error) for error in (wrong_type, wrong_password)] == [PERMANENT, PERMANENT]
