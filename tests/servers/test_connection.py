"""One connection that many calls share."""

import asyncio

import pytest

from corral.errors import RedisConnectionError, RedisResponseError
from corral.store.client import Store
from tests.support.polling import becomes_true
from tests.support.servers import Server, free_port


async def test_calls_made_together_share_one_connection_and_keep_their_answers(store: Store, server: Server):
    answers = await asyncio.gather(*(store.call("ECHO", f"word {n}") for n in range(500)))
    assert answers == [f"word {n}".encode() for n in range(500)]
    with server.connect() as client:
        ours = [line for line in client.client_list() if line["cmd"] == "echo"]
    assert len(ours) == 1


async def test_a_cancelled_call_does_not_shift_the_answers_of_others(store: Store):
    first = asyncio.create_task(store.call("ECHO", "first"))
    second = asyncio.create_task(store.call("ECHO", "second"))
    third = asyncio.create_task(store.call("ECHO", "third"))
    await asyncio.sleep(0)
    second.cancel()
    assert await first == b"first"
    assert await third == b"third"
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await store.call("ECHO", "fourth") == b"fourth"


async def test_an_error_belongs_to_its_own_call(store: Store):
    await store.call("SET", "text", "x")
    results = await asyncio.gather(
        store.call("ECHO", "a"), store.call("INCR", "text"), store.call("ECHO", "b"), return_exceptions=True
    )
    assert results[0] == b"a"
    assert isinstance(results[1], RedisResponseError)
    assert results[2] == b"b"


async def test_a_break_fails_what_is_under_way_and_the_next_call_dials_again(store: Store, server: Server):
    number = await store.call("CLIENT", "ID")
    waiting = asyncio.create_task(store.call("BLPOP", "nothing", 30))
    with server.connect() as client:
        assert await becomes_true(lambda: client.info("clients")["blocked_clients"])
        client.client_kill_filter(_id=str(number))
    with pytest.raises(RedisConnectionError, match="closed the connection"):
        await waiting
    assert await store.call("PING") == b"PONG"


async def test_a_server_that_does_not_answer_is_away(url: str):
    store = Store(url, reply_timeout=0.3)
    with pytest.raises(RedisConnectionError, match=r"no reply within 0\.3 s"):
        await store.call("BLPOP", "nothing", 30)
    assert await store.call("PING") == b"PONG"
    await store.close()


async def test_what_is_not_a_redis_server_is_away():
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(speak_http, "127.0.0.1", port):
        store = Store(f"redis://127.0.0.1:{port}")
        with pytest.raises(RedisConnectionError, match="not Redis"):
            await store.call("PING")
        await store.close()


async def test_large_answers_arrive_whole(store: Store):
    data = b"x" * 9_000_000
    await store.call("SET", "large", data)
    large, small = await asyncio.gather(store.call("GET", "large"), store.call("ECHO", "small"))
    assert large == data
    assert small == b"small"


async def test_a_wrong_password_says_so_and_shows_none(server: Server):
    store = Store(f"redis://nobody:secret@127.0.0.1:{server.port}")
    with pytest.raises(RedisResponseError, match="WRONGPASS") as caught:
        await store.call("PING")
    assert "secret" not in str(caught.value)
    await store.close()


async def test_the_database_of_the_address_is_used(server: Server):
    store = Store(f"{server.url}/3")
    await store.call("SET", "here", "1")
    with server.connect() as client:
        assert not client.exists("here")
        client.select(3)
        assert client.exists("here")
    await store.close()
