"""The store on a real server: replies, scripts, blocking connections, the first contact."""

import asyncio
import shutil
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from corral.errors import RedisConnectionError, RedisResponseError, RedisUnblockedError
from corral.store.client import Store
from corral.store.scripts import Script
from tests.support.polling import becomes_true
from tests.support.servers import Server, free_port, start_valkey


async def test_answers_come_as_the_server_gave_them(store: Store) -> None:
    assert await store.call("HSET", "hash", "field", b"\xff\x00") == 1
    assert await store.call("HGETALL", "hash") == [b"field", b"\xff\x00"]
    assert await store.call("SET", "a", "b") == b"OK"
    assert await store.call("GET", "missing") is None


async def test_an_address_cannot_change_the_form_of_the_answers(server: Server) -> None:
    store = Store(f"{server.url}?protocol=3&decode_responses=yes&retry_on_timeout=yes")
    await store.call("HSET", "hash", "field", "value")
    assert await store.call("HGETALL", "hash") == [b"field", b"value"]
    await store.close()


async def test_the_number_of_a_database_is_honoured(server: Server, store: Store) -> None:
    third = Store(f"{server.url}/3")
    await third.call("SET", "only here", "yes")
    assert await store.call("EXISTS", "only here") == 0
    await third.close()


async def test_a_pipe_answers_in_order(store: Store) -> None:
    assert await store.pipe([["SET", "a", 1], ["INCR", "a"], ["GET", "a"]]) == [b"OK", 2, b"2"]


async def test_a_pipe_says_what_failed_but_not_with_which_data(store: Store) -> None:
    with pytest.raises(RedisResponseError, match="WRONGTYPE") as caught:
        await store.pipe([["SET", "a", "x"], ["LPUSH", "a", "secret data"], ["SET", "b", "y"]])
    assert "secret" not in str(caught.value)
    assert await store.call("GET", "b") == b"y"


async def test_a_script_the_server_has_forgotten_is_taught_again(store: Store) -> None:
    script = Script("count", "return redis.call('INCR', KEYS[1])")
    for expected in range(1, 4):
        assert await store.run(script, ["counter"], []) == expected
        await store.call("SCRIPT", "FLUSH")


async def test_a_script_is_sent_by_its_hash_once_known(store: Store, server: Server) -> None:
    script = Script("echo", "return ARGV[1]")
    await store.run(script, [], ["first"])
    await store.call("CONFIG", "RESETSTAT")
    assert await store.run(script, [], ["second"]) == b"second"
    with server.connect() as client:
        calls = client.info("commandstats")
    assert calls["cmdstat_evalsha"]["calls"] == 1
    assert "cmdstat_eval" not in calls


async def test_a_lost_answer_is_not_asked_for_again() -> None:
    """A script may have run although its answer was lost: it is sent once, whatever happens."""
    received: list[bytes] = []

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            received.append(piece)
            if b"EVALSHA" in piece:
                writer.close()
                return
            writer.write(b"+OK\r\n" * piece.count(b"*"))

    proxy = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    store = Store(f"redis://127.0.0.1:{port}")
    with pytest.raises(RedisConnectionError):
        await store.run(Script("any", "return 1"), [], [])
    assert b"".join(received).count(b"EVALSHA") == 1
    await store.close()
    proxy.close()


async def test_an_answer_that_does_not_come_is_away_after_the_timeout() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    mute = await asyncio.start_server(silent, "127.0.0.1", 0)
    store = Store(f"redis://127.0.0.1:{mute.sockets[0].getsockname()[1]}", reply_timeout=0.05)
    with pytest.raises(RedisConnectionError):
        await store.call("PING")
    await store.close()
    mute.close()


def blocked_as(server: Server, name: str) -> list[str]:
    """The connections of that name which wait in a blocking call."""
    with server.connect() as client:
        others = client.client_list()
    return [other["id"] for other in others if other["name"] == name and "b" in other["flags"]]


async def test_a_greeting_without_an_answer_leaves_no_connection() -> None:
    is_closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        is_closed.set()
        writer.close()

    mute = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = mute.sockets[0].getsockname()[1]
    store = Store(f"redis://:secret@127.0.0.1:{port}?socket_connect_timeout=0.05")
    with pytest.raises(RedisConnectionError):
        await store.call("PING")
    async with asyncio.timeout(5):
        await is_closed.wait()
    mute.close()


async def test_a_line_is_a_connection_of_its_own_with_a_name(store: Store, server: Server) -> None:
    line = store.blocking_connection("bull:bWFpbA==", 5)
    waiting = asyncio.create_task(line.call("BZPOPMIN", "marker", 5))
    assert await becomes_true(lambda: blocked_as(server, "bull:bWFpbA=="))
    await store.call("ZADD", "marker", 0, "0")
    assert await waiting == [b"marker", b"0", b"0"]
    await line.disconnect()


async def test_a_line_that_failed_dials_anew(store: Store, server: Server) -> None:
    line = store.blocking_connection("mine", 5)
    waiting = asyncio.create_task(line.call("BLPOP", "nothing", 5))
    assert await becomes_true(lambda: blocked_as(server, "mine"))
    first = blocked_as(server, "mine")[0]
    await store.call("CLIENT", "UNBLOCK", first, "ERROR")
    with pytest.raises(RedisUnblockedError):
        await waiting
    waiting = asyncio.create_task(line.call("BLPOP", "list", 5))
    assert await becomes_true(lambda: blocked_as(server, "mine"))
    assert blocked_as(server, "mine") != [first]
    await store.call("RPUSH", "list", "x")
    assert await waiting == [b"list", b"x"]
    await line.disconnect()


async def test_a_call_on_a_line_that_was_cancelled_leaves_no_connection(store: Store, server: Server) -> None:
    line = store.blocking_connection("given-up", 5)
    waiting = asyncio.create_task(line.call("BLPOP", "nothing", 5))
    assert await becomes_true(lambda: blocked_as(server, "given-up"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await becomes_true(lambda: not blocked_as(server, "given-up"), seconds=2)


async def test_a_unix_socket_is_connected_to(tmp_path: Path) -> None:
    server = start_valkey("--unixsocket", "a b.sock")
    try:
        store = Store(f"unix://{server.folder}/a%20b.sock?db=2")
        await store.check_connection()
        await store.call("SET", "over", "a socket")
        with server.connect() as client:
            client.select(2)
            assert client.get("over") == b"a socket"
        await store.close()
    finally:
        server.stop()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_tls_is_spoken_to_rediss_addresses(server: Server, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
         "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while piece := await source.read(65536):
                target.write(piece)
            target.close()

        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    proxy = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
    address = f"rediss://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    trusting = Store(f"{address}?ssl_ca_certs={certificate}")
    assert await trusting.call("PING") == b"PONG"
    await trusting.close()
    doubting = Store(address)
    with pytest.raises(RedisConnectionError, match=r"rediss://127\.0\.0\.1.*(?i:certificate)"):
        await doubting.check_connection()
    await doubting.close()
    proxy.close()


async def test_debians_redis_serves_as_well(redis7: Server) -> None:
    store = Store(redis7.url)
    await store.check_connection()
    assert await store.run(Script("echo", "return ARGV[1]"), [], ["x"]) == b"x"
    assert (await store.call("HELLO"))[:2] == [b"server", b"redis"]
    await store.close()


async def test_a_failed_connection_check_names_the_address() -> None:
    port = free_port()
    store = Store(f"redis://me:secret@127.0.0.1:{port}/1")
    with pytest.raises(RedisConnectionError) as caught:
        await store.check_connection()
    assert f"no server at redis://me:***@127.0.0.1:{port}/1" in str(caught.value)
    assert "REDIS_URL" in str(caught.value)
    assert "secret" not in str(caught.value)
    await store.close()


async def test_a_connection_check_names_a_missing_socket(tmp_path: Path) -> None:
    store = Store(f"unix://{tmp_path}/none.sock")
    with pytest.raises(RedisConnectionError, match=r"no server at unix:///.*/none\.sock"):
        await store.check_connection()
    await store.close()


async def test_a_wrong_password_is_refused_not_awaited(server: Server, store: Store) -> None:
    await store.call("ACL", "SETUSER", "me", "on", ">right")
    intruder = Store(f"redis://me:wrong@127.0.0.1:{server.port}")
    with pytest.raises(RedisResponseError, match=r"redis://me:\*\*\*@127") as caught:
        await intruder.check_connection()
    assert "wrong@" not in str(caught.value)
    await intruder.close()
    await store.call("ACL", "DELUSER", "me")
