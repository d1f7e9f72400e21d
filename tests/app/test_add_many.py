"""Many jobs at once: any size, bounded batches, and one bad job among good ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import orjson
import pytest

from corral import (
    AddInterrupted,
    Corral,
    InvalidOptions,
    InvalidPayload,
    JobHandle,
    JobState,
    Queue,
    RedisConnectionError,
)
from corral.errors import ParentMissing
from tests.support.proxy import Command, Proxy, ProxyFault, runs
from tests.support.servers import Server


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


async def test_many_jobs_come_in_order_and_in_bounded_batches(app: Corral, server: Server) -> None:
    with server.connect() as client:
        client.config_resetstat()
    ids = await app.queue("mail").add_many([("greet", {"n": n}) for n in range(12_345)])
    assert ids == [str(number) for number in range(1, 12_346)]
    with server.connect() as client:
        assert client.llen("bull:mail:wait") == 12_345
        assert orjson.loads(client.hget("bull:mail:12345", "data")) == {"n": 12_344}
        stats: dict[str, Any] = client.info("commandstats")
        calls = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))
        assert 25 <= calls <= 27, "one script for each 500 jobs, and one to teach it"


async def test_batches_are_bounded_by_bytes_too(app: Corral, server: Server) -> None:
    with server.connect() as client:
        client.config_resetstat()
        await app.queue("mail").add_many([("greet", "x" * 1_500_000) for _ in range(6)])
        stats: dict[str, Any] = client.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] >= 3
        assert client.llen("bull:mail:wait") == 6


async def test_a_generator_is_never_held_as_a_whole(app: Corral) -> None:
    taken = 0

    def people() -> Iterator[tuple[str, int]]:
        nonlocal taken
        for taken in range(1, 25_001):
            yield ("greet", taken)

    queue = app.queue("mail")
    adding = asyncio.create_task(queue.add_many(people()))
    while not (await queue.counts())[JobState.WAITING]:
        await asyncio.sleep(0)
    assert taken < 25_000, "the first jobs are there before the last is made"
    assert len(await adding) == 25_000


async def test_each_of_many_may_have_options_of_its_own(app: Corral) -> None:
    queue = app.queue("mail")
    jobs = [("greet", 1), ("greet", 2, {"id": "second", "delay": 60_000}), ("greet", 3, {"attempts": 1})]
    ids = await queue.add_many(jobs, attempts=7)
    assert ids[1] == "second"
    found = [await queue.job(job_id) for job_id in ids]
    assert [(job.data, job.options.attempts, job.options.delay) for job in found if job] == [
        (1, 7, 0),
        (2, 7, 60_000),
        (3, 1, 0),
    ]


async def test_jobs_of_a_list_are_stored_as_if_each_came_alone(app: Corral, server: Server) -> None:
    kinds = [
        ("greet", {}),
        ("part", {}),
        ("greet", {"priority": 3}),
        ("greet", {"delay": 60_000, "attempts": 9}),
        ("part", {"lifo": True}),
    ]
    jobs = [(name, {"n": n}, dict(own)) for n in range(20) for name, own in kinds]
    plain = [(name, {"n": n}) for n in range(20) for name in ("greet", "part")]
    await app.queue("together").add_many(jobs + plain, attempts=4)
    for name, data, own in jobs:
        await app.queue("alone").add(name, data, **{"attempts": 4, **own})
    for name, data in plain:
        await app.queue("alone").add(name, data, attempts=4)

    def stored(queue: str) -> list[Any]:
        with server.connect() as client:
            prefix = f"bull:{queue}:"
            hashes = [client.hgetall(f"{prefix}{n}") for n in range(1, len(jobs) + len(plain) + 1)]
            for fields in hashes:
                del fields[b"timestamp"]
            events = [fields for _, fields in client.xrange(f"{prefix}events")]
            order = client.lrange(f"{prefix}wait", 0, -1), client.zrange(f"{prefix}prioritized", 0, -1)
            for fields in events:
                fields.pop(b"delay", None)
            return [hashes, events, order]

    assert stored("together") == stored("alone")


async def test_many_of_one_kind_take_the_decorators_options(app: Corral) -> None:
    @app.job("send-email", queue="mail", attempts=4)
    async def send_email(job: Any) -> None: ...

    handles = await send_email.add_many({"to": name} for name in ("a", "b"))
    jobs = [await send_email.queue.job(handle.id) for handle in handles]
    assert [(job.data, job.options.attempts) for job in jobs if job] == [({"to": "a"}, 4), ({"to": "b"}, 4)]


async def test_nothing_is_added_for_an_empty_list(app: Corral, server: Server) -> None:
    assert await app.queue("mail").add_many([]) == []
    with server.connect() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (("greet", float("nan")), r"job 700 of this call: data is nan"),
        (("greet", {}, {"delay": -1}), r"job 700 of this call: delay is -1"),
        (("greet", {}, {"id": "meta"}), r"job 700 of this call: job id 'meta'"),
        (
            ("greet", {}, {"parent": {"id": "gone", "queue": "bull:mail"}}),
            r"job 700 of this call: the parent 'bull:mail:gone' does not exist",
        ),
        (("", {}), r"job 700 of this call: job name is empty"),
        ({"name": "greet"}, r"job 700 of this call: .* is no job; give \(name, data\)"),
        (("greet", {}, "x"), r"job 700 of this call: .* is no job"),
    ],
)
async def test_a_refused_job_of_many_is_named_by_its_position_and_nothing_is_written(
    app: Corral, server: Server, bad: Any, why: str
) -> None:
    jobs: list[Any] = [("greet", n) for n in range(1200)]
    jobs[700] = bad
    with pytest.raises((InvalidOptions, InvalidPayload, ValueError), match=why) as caught:
        await app.queue("mail").add_many(jobs)
    assert caught.value.position == 700  # type: ignore[union-attr]
    with server.connect() as client:
        assert client.dbsize() == 0


async def test_of_a_generator_with_a_bad_job_the_position_is_told_too(app: Corral) -> None:
    with pytest.raises(InvalidPayload, match=r"job 10002 of this call: data is nan"):
        await app.queue("mail").add_many(("greet", n if n != 10_002 else float("nan")) for n in range(20_000))
    assert (await app.queue("mail").counts())[JobState.WAITING] == 10_000


async def test_of_a_kinds_own_list_too_nothing_is_written(app: Corral, server: Server) -> None:
    @app.job("embed", protocol="streams")
    async def embed(job: Any) -> None: ...

    with pytest.raises(InvalidPayload, match=r"job 2 of this call: payload is a list"):
        await embed.add_many([{"n": 1}, {"n": 2}, [3]])
    with server.connect() as client:
        assert client.dbsize() == 0


# -- a connection that is lost half-way ---------------------------------------------------------------------


def runs_script_number(number: int) -> Callable[[Command], bool]:
    """Matches that call of a script, from 1 on, that the server knows already."""
    calls = 0

    def matches(command: Command) -> bool:
        nonlocal calls
        calls += runs("EVALSHA")(command)
        return calls == number

    return matches


@pytest.fixture
async def cut_app(proxy: Proxy) -> AsyncIterator[Corral]:
    async with Corral(proxy.url) as app:
        yield app


async def written(app: Corral, queue: Queue) -> dict[int, str]:
    """Return the ids of the jobs that exist, by their numbers."""
    jobs = await app.queue(queue.name, protocol=queue.protocol.spec.name).jobs(JobState.WAITING, 10_000)
    return {job.data["n"]: job.id for job in jobs}


@pytest.mark.parametrize("fault", [ProxyFault.CUT_BEFORE, ProxyFault.SWALLOW])
@pytest.mark.parametrize(
    ("protocol", "name"), [("bullmq", "mail"), ("streams", "jobs"), ("bridgemq", "mail")]
)
async def test_a_list_that_is_cut_half_way_says_which_jobs_were_added(
    cut_app: Corral, app: Corral, proxy: Proxy, protocol: str, name: str, fault: ProxyFault
) -> None:
    queue = cut_app.queue(name, protocol=protocol)
    proxy.rule(runs_script_number(4), fault)
    with pytest.raises(AddInterrupted, match=r"jobs were added, \d+ are in doubt") as caught:
        await queue.add_many([("chat", {"n": n}) for n in range(2600)])
    error, jobs = caught.value, await written(app, queue)
    assert isinstance(error.__cause__, RedisConnectionError)
    assert len(error.added) >= 500
    assert {number: jobs.get(number) for number in error.added} == error.added
    assert not jobs.keys() & set(error.not_added)
    assert 500 <= len(error.in_doubt) <= 1000, "two batches are in flight at a time"
    assert sorted([*error.added, *error.in_doubt, *error.not_added]) == list(range(2600))


async def test_a_generator_that_is_cut_says_which_of_all_its_jobs_were_added(
    cut_app: Corral, app: Corral, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.queue.CHECKED_TOGETHER", 500)
    proxy.rule(runs_script_number(3), ProxyFault.SWALLOW)
    queue = cut_app.queue("mail")
    with pytest.raises(AddInterrupted) as caught:
        await queue.add_many(("greet", {"n": n}) for n in range(1001))
    error = caught.value
    assert (len(error.added), error.in_doubt, error.not_added) == (1000, [1000], [])
    jobs = await written(app, queue)
    assert jobs.pop(1000), "this one was added"
    assert jobs == error.added


async def test_a_list_that_was_never_sent_is_not_in_doubt(server: Server) -> None:
    proxy = Proxy(server.port)
    with proxy:
        app = Corral(proxy.url)
        await app.queue("mail").add("greet")
    with pytest.raises(RedisConnectionError):
        await app.queue("mail").add("greet")
    with pytest.raises(AddInterrupted) as caught:
        await app.queue("mail").add_many([("greet", n) for n in range(3)])
    assert (caught.value.added, caught.value.in_doubt, caught.value.not_added) == ({}, [], [0, 1, 2])
    await app.close()


# -- adds of many callers -----------------------------------------------------------------------------------


async def test_adds_of_many_callers_at_once_travel_together(app: Corral, server: Server) -> None:
    queue = app.queue("mail")
    await queue.add("greet", 0)
    with server.connect() as client:
        client.config_resetstat()
        handles = await asyncio.gather(*(queue.add("greet", n) for n in range(1, 101)))
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 2, (
            "the first at once, then the rest"
        )
    assert [handle.id for handle in handles] == [str(number) for number in range(2, 102)]
    assert [(await queue.job(handle.id)).data for handle in handles[:3]] == [1, 2, 3]


async def test_a_refused_add_does_not_touch_those_that_travel_with_it(app: Corral) -> None:
    queue = app.queue("mail")
    orphan = {"parent": {"id": "nobody", "queue": "bull:mail"}}
    adds = [
        queue.add("greet", 1),
        queue.add("greet", 2, **orphan),
        queue.add("greet", 3),
        queue.add("greet", {1}),
    ]
    first, missing, third, invalid = await asyncio.gather(*adds, return_exceptions=True)
    assert isinstance(missing, ParentMissing)
    assert isinstance(invalid, InvalidPayload)
    assert isinstance(first, JobHandle)
    assert isinstance(third, JobHandle)
    assert (await queue.counts())[JobState.WAITING] == 2


async def test_adds_whose_reply_was_lost_fail_each_like_one(
    cut_app: Corral, app: Corral, proxy: Proxy
) -> None:
    queue = cut_app.queue("mail")
    await queue.add("greet", 0)
    proxy.rule(runs("EVALSHA"), ProxyFault.SWALLOW, times=2)
    answers = await asyncio.gather(*(queue.add("greet", n) for n in range(1, 6)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {RedisConnectionError}
    assert (await app.queue("mail").counts())[JobState.WAITING] == 6
    assert (await queue.add("greet", 6)).id == "7"
