"""Scripts that are called with wrong arguments: refused or run, and the queue goes on.

The calls are those of a real program, taken on their way to the server; one argument of each is replaced.
"""

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest
import redis

from corral import Corral, JobFilter, JobState, Transient
from tests.support.apps import ended, working
from tests.support.harness import JOB_NAMES
from tests.support.polling import until
from tests.support.proxy import Command, Proxy
from tests.support.servers import Server

PROTOCOLS = pytest.mark.parametrize("protocol", ["bullmq", "streams", "bridgemq"])
ODD = [
    b"", b"0", b"-1", b"1e400", b"nan", b"9" * 30, b"null", b"{", b"[]", b"{}", b"\xff\xfe", b"\xc1",
    b"\x80", b"\x90", b"\xdd\xff\xff\xff\xff", b"true", b"a:b", b"x" * 5000,
]  # fmt: skip


def changed(argument: bytes, chance: random.Random) -> bytes:
    """Return another argument: an odd one, a part of it, or one with other bytes in it."""
    match chance.randrange(4):
        case 0:
            return chance.choice(ODD)
        case 1:
            return argument[: chance.randrange(len(argument) + 1)]
        case 2:
            return argument + chance.choice(ODD)
    replaced = bytearray(argument or b"\0")
    for _ in range(chance.randint(1, 3)):
        replaced[chance.randrange(len(replaced))] = chance.randrange(256)
    return bytes(replaced)


def with_one_changed(call: Command, chance: random.Random) -> Command:
    """Return the call with one argument replaced, left out or doubled; keys stay."""
    first = 3 + int(call[2])
    if len(call) == first:
        return [*call, chance.choice(ODD)]
    place = chance.randrange(first, len(call))
    match chance.randrange(6):
        case 0:
            return call[:place] + call[place + 1 :]
        case 1:
            return [*call[:place], call[place], *call[place:]]
    return [*call[:place], changed(call[place], chance), *call[place + 1 :]]


async def live(app: Corral, protocol: str) -> None:
    """Use a queue as programs do: add, work, retry, fail, log, operate."""
    name = JOB_NAMES.get(protocol, "work")
    options = {} if protocol == "streams" else {"attempts": 2, "backoff": 1}

    @app.job(name, **options)
    async def work(job):
        await job.progress(50)
        if protocol != "streams":
            await job.log("a line")
        if job.data.get("fails"):
            raise Transient("not yet")
        return job.data

    queue = app.queue()
    ids = await queue.add_many([(name, {"n": n, "fails": n == 3}) for n in range(6)])
    async with working(app, concurrency=3):
        for job_id in ids:
            await ended(queue, job_id)
    if protocol != "streams":
        await queue.add(name, {}, delay=3_600_000)
        await queue.pause()
        await queue.resume()
        await queue.replay(JobFilter(states=frozenset({JobState.DEAD})))
    await queue.counts()
    await queue.jobs(JobState.COMPLETED)
    last = await queue.add(name, {"n": 9})
    await last.cancel()


def scripts(calls: Sequence[Command]) -> list[Command]:
    return [call for call in calls if call[0].upper() in (b"EVALSHA", b"EVAL") and len(call) > 3]


def types(client: redis.Redis) -> dict[bytes, bytes]:
    """Return the type of every key."""
    keys = list(client.scan_iter(count=1000))
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.type(key)
        found = zip(keys, pipeline.execute(), strict=True)
        return {key: kind for key, kind in found if kind != b"none"}  # it may have expired meanwhile


@PROTOCOLS
@pytest.mark.parametrize("count", [40, pytest.param(3000, marks=pytest.mark.faults)])
async def test_a_script_with_a_wrong_argument_leaves_a_queue_that_works(
    protocol: str, count: int, server: Server, client: redis.Redis
) -> None:
    chance = random.Random(count)
    with Proxy(server.port) as proxy:
        async with Corral(proxy.url, protocol=protocol) as app:
            await live(app, protocol)
        recorded = scripts(proxy.commands)
    assert len({call[1] for call in recorded}) >= 5, "several scripts were called"
    kinds = types(client)
    for number in range(count):
        call = with_one_changed(chance.choice(recorded), chance)
        with suppress(redis.ResponseError):
            client.execute_command(*call)
        if number % (count // 20) == 0:
            after = types(client)
            odd = [key for key, kind in after.items() if kinds.get(key, kind) != kind]
            assert not odd, f"keys of another type after {call!r}"
    async with Corral(server.url, protocol=protocol) as app:
        name = JOB_NAMES.get(protocol, "work")

        @app.job(name)
        async def work(job):
            return "done"

        queue = app.queue()
        if protocol != "streams" and await queue.is_paused():
            await queue.resume()
        handle = await queue.add(name, {"n": 10})
        async with working(app, concurrency=5):
            assert await handle.result(timeout=60) == "done"

            async def is_idle() -> bool:
                return (await queue.counts()).get(JobState.WAITING, 0) == 0

            await until(is_idle, "every job that is left has run", 60)
