"""Jobs move between queues, namespaces and protocols with all they have, and nothing moves by halves."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
import redis

from corral import Corral
from corral.core.job import Backoff, Job, JobState, Keep
from corral.core.outcome import Completed, Dead, Retry, Settlement
from corral.core.ports import Flow
from corral.core.schedule import ScheduleRule
from corral.errors import InvalidOptions, QueueInUse, Refused, UnknownProtocol, Unsupported
from corral.migrate import MoveOptions, MoveReport, migrate, open_move
from corral.protocols import protocol_names
from corral.spark.migrate import move_lane
from corral.store.client import Store
from tests.migrate.conftest import MakeSide, Side, move, name_in
from tests.support.apps import working
from tests.support.keyspace import look
from tests.support.polling import until
from tests.support.servers import Server

PAIRS = [(one, other) for one in protocol_names() for other in protocol_names()]


def dump(client: redis.Redis, prefix: str = "") -> dict[str, Any]:
    """Every key with its value."""
    return {name: entry.value for name, entry in look(client, prefix)[0].items()}


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_waiting_jobs_keep_their_data_and_order(side: MakeSide, one: str, other: str) -> None:
    source, target = side(one, "from"), side(other, "to")
    name = name_in("streams" if "streams" in (one, other) else one)
    data = [
        {"n": n, "big": 130775545883395173, "empty": []}
        for n in range(300 if one == other == "bullmq" else 30)
    ]
    await source.add(*(source.job(datum, name=name, attempts=1, backoff=None) for datum in data))
    report = await move(source, target, adapt=True)
    assert (report.count, report.is_verified) == (len(data), True), report
    assert report.compared == min(len(data), 100)
    assert [job.data for job in await target.listed()] == data
    assert await source.jobs() == {}
    assert await source.keys() == []


async def busy(source: Side) -> None:
    """Fill a queue with jobs in every state that a job can be moved in, and one that is active."""
    broker = source.broker()
    can_keep = source.protocol.spec.name == "bullmq"
    keep: dict[str, Any] = {"keep_completed": Keep(count=100)} if can_keep else {}
    await source.add(*(source.job({"n": n}, attempts=5, **keep) for n in range(5)))
    outcomes = (
        Retry(delay=3_600_000, reason="not yet", trace="Traceback 1", error="ValueError"),
        Completed(result=b'{"sent":[]}'),
        Dead(reason="never", trace="Traceback 2", error="KeyError"),
        Retry(delay=0, reason="again", trace="Traceback 3", error="ValueError"),
    )
    turn = await broker.turn([], 5)
    for claim in turn.claims[:4]:
        await source.reporter().log(claim, f"line of {claim.job.data['n']}", "mark")
    settlements = [
        Settlement(claim, outcome, source.now) for claim, outcome in zip(turn.claims, outcomes, strict=False)
    ]
    assert not any((await broker.turn(settlements, 0)).verdicts)
    await source.add(
        source.job({"id": 1}, id="order-1"),
        source.job({"late": 1}, delay=86_400_000),
        source.job({"urgent": 1}, priority=9),
    )


@pytest.mark.parametrize("protocol", ["bullmq", "bridgemq"])
async def test_jobs_keep_attempts_failures_logs_results_and_due_times(side: MakeSide, protocol: str) -> None:
    source, target = side(protocol, "from"), side(protocol, "to")
    await busy(source)
    before = await source.jobs()
    logs = {job_id: await source.inspector.logs(job_id) for job_id in before}
    scores = await source.store.call("ZRANGE", f"from:{_delayed(source)}", 0, -1, "WITHSCORES")
    report = await move(source, target, ended=True)
    assert report.is_verified, report
    [active] = [job for job in before.values() if job.state is JobState.ACTIVE]
    assert [(left.count, left.examples) for left in report.left.values()] == [(1, [active.id])]
    after = await target.jobs()
    assert after.keys() == before.keys() - {active.id}
    for job_id, job in after.items():
        assert _shown(job) == _shown(before[job_id])
        assert await target.inspector.logs(job_id) == logs[job_id]
    assert await target.store.call("ZRANGE", f"to:{_delayed(source)}", 0, -1, "WITHSCORES") == scores
    assert list(await source.jobs()) == [active.id]


def _delayed(side: Side) -> str:
    return "default:delayed" if side.protocol.spec.name == "bullmq" else "jobs:delayed"


def _shown(job: Job) -> dict[str, Any]:
    parts = (
        "name",
        "data",
        "state",
        "attempts_made",
        "created_at",
        "finished_at",
        "result",
        "reason",
        "trace",
    )
    shown = {part: job.__getattribute__(part) for part in (*parts, "failed_attempts", "progress")}
    return {**shown, "options": {"priority": job.options.priority, "attempts": job.options.attempts}}


async def test_a_queue_of_bullmq_is_key_for_key_the_same_elsewhere(
    side: MakeSide, client: redis.Redis
) -> None:
    source, target = side("bullmq", "from"), side("bullmq", "to")
    await source.add(
        *(source.job({"n": n}) for n in range(3)),
        source.job({"n": 3}, priority=2),
        source.job({"n": 4}, delay=60_000, backoff=Backoff("fixed", 5), keep_dead=Keep(age=60), lifo=True),
        source.job({"n": 5}, id="own", deduplication={"id": "once"}),
    )
    before = _relevant(dump(client, "from:"))
    await move(source, target)
    assert _relevant(dump(client, "to:")) == before


def _relevant(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys but for events, marks of movement and numbers given out."""
    others = ("events", "ledger:", "move:", ":id", "meta", "pc")
    return {name: value for name, value in keys.items() if not any(part in name for part in others)}


async def test_flows_move_whole_within_a_protocol_that_has_them(side: MakeSide, url: str) -> None:
    source, target = side("bullmq", "from"), side("bullmq", "to")
    assert source.ports.flows is not None
    flow = await source.ports.flows.add(
        Flow(
            source.job({"root": 1}),
            (
                Flow(source.job({"leaf": 1})),
                Flow(source.job({"middle": 1}), (Flow(source.job({"leaf": 2}, delay=86_400_000)),)),
            ),
        )
    )
    broker = source.broker()
    [claim] = (await broker.turn([], 1)).claims
    report = await move(source, target)
    assert (report.count, "flow" in str(report.left)) == (0, True), "a flow with an active job moves not"
    again = Settlement(claim, Retry(delay=0, reason="again", trace="", error=""), source.now)
    assert not any((await broker.turn([again], 0)).verdicts)
    report = await move(source, target)
    assert (report.count, report.is_verified) == (4, True), report
    assert await source.jobs() == {}
    tree = await target.ports.flows.tree(flow.job.id)  # type: ignore[union-attr]
    assert tree is not None
    assert sorted(str(child.job.data) for child in tree.children) == ["{'leaf': 1}", "{'middle': 1}"]
    async with Corral(url, protocol="bullmq", namespaces={"bullmq": "to"}) as app:
        ran: list[Any] = []

        @app.job("work", queue="default")
        async def work(job: Any) -> None:
            ran.append(job.data)

        await target.operator.promote([job.id for job in await target.listed(JobState.DELAYED)])
        async with working(app):
            await until(lambda: _has(ran, 4), "all jobs of the flow")
    assert ran[-1] == {"root": 1}


async def _has(ran: list[Any], count: int) -> bool:
    return len(ran) == count


@pytest.mark.parametrize(("one", "other"), [("bullmq", "bridgemq"), ("bridgemq", "bullmq"), ("bullmq",) * 2])
async def test_schedules_move_where_both_can(side: MakeSide, one: str, other: str) -> None:
    source, target = side(one, "from"), side(other, "to")
    assert source.ports.schedules is not None
    assert target.ports.schedules is not None
    rule = ScheduleRule(cron="0 3 * * *", timezone="Europe/Berlin")
    await source.ports.schedules.upsert(source.job({"a": 1}, id="nightly"), rule)
    [before] = await source.ports.schedules.list()
    report = await move(source, target, adapt=True)
    assert (report.schedules, report.left) == (1, {}), report
    [after] = await target.ports.schedules.list()
    assert (after.id, after.rule, after.next_at) == ("nightly", rule, before.next_at)
    assert after.job.data == {"a": 1}
    assert await source.ports.schedules.list() == []
    assert await source.jobs() == {}


async def test_an_interval_stays_where_the_target_has_none(side: MakeSide) -> None:
    source, target = side("bullmq", "from"), side("bridgemq", "to")
    assert source.ports.schedules is not None
    await source.ports.schedules.upsert(source.job({}, id="often"), ScheduleRule(every_ms=1000))
    with pytest.raises(Refused, match=r"has no intervals.*Nothing was moved"):
        await move(source, target, adapt=True)
    report = await move(source, target, adapt=True, leave=True)
    assert next(iter(report.left)).endswith("has no intervals; use a cron expression")
    assert len(await source.ports.schedules.list()) == 1


async def test_a_dry_run_says_what_does_not_fit_and_writes_nothing(
    side: MakeSide, client: redis.Redis
) -> None:
    source, target = side("bullmq", "from"), side("streams", "to")
    await source.add(
        source.job({"n": 1}, name="embed", attempts=1, backoff=None),
        source.job({"n": 2}, name="embed", priority=3),
        source.job({"n": 3}, name="embed", delay=60_000, attempts=1, backoff=None),
        source.job({"n": 4}, name="send", attempts=1, backoff=None),
        source.job([5], name="embed", attempts=1, backoff=None),
        source.job({"n": "x" * 300_000}, name="embed", attempts=1, backoff=None),
    )
    before = dump(client)
    report = await move(source, target, dry_run=True)
    assert dump(client) == before
    assert report.count == 1
    reasons = " | ".join(report.left)
    for part in (
        "priority:",
        "attempts:",
        "backoff:",
        "delay:",
        "name:",
        "payload is a list",
        "payload has 300008 bytes",
    ):
        assert part in reasons, (part, reasons)
    with pytest.raises(Refused, match=r"do not fit .* Nothing was moved"):
        await move(source, target)
    assert dump(client) == before
    report = await move(source, target, adapt=True, leave=True, rename={"send": "tool"})
    assert (report.count, report.is_verified) == (3, True), report
    assert sorted(job.name for job in (await target.jobs()).values()) == ["embed", "embed", "tool"]
    assert sorted(job.data["n"] if isinstance(job.data, dict) else 5 for job in (await source.jobs()).values()
                  if len(str(job.data)) < 100) == [3, 5]  # fmt: skip


async def test_an_id_that_is_taken_stays_unless_a_server_gave_it(side: MakeSide) -> None:
    source, target = side("bullmq", "from"), side("bullmq", "to")
    await source.add(source.job({"s": 1}), source.job({"s": 2}, id="own"))
    await target.add(target.job({"t": 1}), target.job({"t": 2}, id="own"))
    dry = await move(source, target, dry_run=True)
    assert [(reason[:3], left.examples) for reason, left in dry.left.items()] == [("id:", ["own"])]
    with pytest.raises(Refused, match=r"'own' .id: it is taken at the target"):
        await move(source, target)
    report = await move(source, target, leave=True)
    assert (report.count, report.renumbered) == (1, 1)
    assert "'own' is taken" in str(report.left)
    assert [job.data for job in await target.listed()] == [{"t": 1}, {"t": 2}, {"s": 1}]
    assert [job.data for job in await source.listed()] == [{"s": 2}]


@pytest.mark.parametrize(("one", "other"), [("bullmq", "streams"), ("streams", "bridgemq")])
async def test_both_sides_work_on_and_each_job_runs_once(
    side: MakeSide, url: str, one: str, other: str
) -> None:
    ran: Counter[int] = Counter()
    apps = []
    for protocol, namespace in ((one, "from"), (other, "to")):
        app = Corral(url, protocol=protocol, namespaces={protocol: namespace})

        @app.job("embed")
        async def embed(job: Any) -> None:
            ran[job.data["n"]] += 1
            await asyncio.sleep(0)

        apps.append(app)
    count = 200
    async with apps[0], apps[1]:
        queue = apps[0].queue()
        options: dict[str, Any] = {} if one == "streams" else {"attempts": 1}
        for start in range(0, count, 100):
            await queue.add_many([("embed", {"n": n}) for n in range(start, start + 100)], **options)
        async with working(apps[0], concurrency=2), working(apps[1], concurrency=2):
            source, target = side(one, "from"), side(other, "to")
            report = await move(source, target, adapt=True, leave=True)
            assert report.is_verified, report
            await until(lambda: _has(list(ran), count), f"all jobs ({len(ran)})")
    assert set(ran.values()) == {1}


# -- bad input ----------------------------------------------------------------------------------------------


async def test_addresses_that_make_no_sense_are_refused_in_one_sentence(side: MakeSide, url: str) -> None:
    source, target = side("bullmq", "from"), side("streams", "to")
    await source.add(source.job({"n": 1}))
    for address, words in {
        "mail": "is no URL; write redis://",
        f"{url}?protocol=bullmq&queue=absent&namespace=from": "no queue 'absent'.*there are: 'default'",
        f"{url}?protocol=sqs": "no protocol 'sqs'",
        f"{url}?format=sidekiq&queue=a": "format 'sidekiq'; use one of rq, celery, arq, json",
        f"{url}?format=rq&protocol=bullmq": "has a protocol and a format",
        f"{url}?format=json": "names no list",
        f"{url}?format=celery&queue=none": "no queue 'none' of celery",
        f"{url}?protocol=streams&queue=mail": "no queue 'mail'.*there are: 'jobs'",
        f"{url}?queue=a&queue=b": "'queue' twice",
        "ftp://a/0": "cannot be used",
    }.items():
        with pytest.raises((Refused, UnknownProtocol), match=words):
            await move(address, target)
    with pytest.raises(InvalidOptions, match="are the same"):
        await move(source, source)
    alias = source.url.replace("127.0.0.1", "localhost")
    with pytest.raises(InvalidOptions, match="are the same queue"):
        await move(alias, source)
    with pytest.raises(Refused, match="has one queue, 'jobs'"):
        await migrate(MoveOptions(source=source.url, target=f"{url}?protocol=streams&queue=mail"))
    with pytest.raises(InvalidOptions, match="to a protocol only"):
        await migrate(MoveOptions(source=source.url, target=f"{url}?format=rq"))


async def test_a_user_without_rights_changes_nothing(side: MakeSide, client: redis.Redis) -> None:
    source, target = side("bullmq", "from"), side("bullmq", "to")
    await source.add(source.job({"n": 1}))
    client.execute_command(
        "ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all", "-zadd", "-@dangerous", "+info", "+keys"
    )
    try:
        before = dump(client)
        address = target.url.replace("redis://", "redis://reader:secret@")
        with pytest.raises(
            InvalidOptions, match=r"user of the target .* 'zadd' command.*Nothing was moved"
        ) as error:
            await migrate(MoveOptions(source=source.url, target=address))
        assert "secret" not in str(error.value)
        assert dump(client) == before
    finally:
        client.execute_command("ACL", "DELUSER", "reader")


async def test_the_source_is_paused_where_it_can_be(side: MakeSide) -> None:
    source, target = side("bullmq", "from"), side("bullmq", "to")
    await source.add(source.job({"n": 1}))
    assert (await move(source, target, paused=True)).count == 1
    assert await source.inspector.is_paused()
    assert not await target.inspector.is_paused()
    streams = side("streams", "third")
    await streams.add(streams.job({"n": 1}))
    with pytest.raises(Unsupported, match="has no pause"):
        await move(streams, target, paused=True, adapt=True)
    assert len(await streams.listed()) == 1


async def test_jobs_move_to_another_server(side: MakeSide, redis7: Server) -> None:
    source = side("bullmq", "same")
    await source.add(*(source.job({"n": n}) for n in range(5)))
    async with AsyncExitStack() as stack:
        store = Store(redis7.url)
        stack.push_async_callback(store.close)
        target = Side("bullmq", store, redis7.url, "same")
        assert (await move(source, target)).is_verified
        assert [job.data["n"] for job in await target.listed()] == list(range(5))
    assert await source.jobs() == {}


async def test_two_processes_at_the_same_move_double_nothing(side: MakeSide) -> None:
    source, target = side("bullmq", "from"), side("streams", "to")
    count = 600
    await source.add(*(source.job({"n": n}, name="embed") for n in range(count)))
    both = await asyncio.gather(*(move(source, target, adapt=True) for _ in range(2)), return_exceptions=True)
    assert any(not isinstance(report, BaseException) for report in both), both
    assert all(isinstance(report, MoveReport | QueueInUse) for report in both), both
    if await source.jobs():
        await move(source, target, adapt=True)
    assert sorted(job.data["n"] for job in await target.listed()) == list(range(count))
    assert await source.jobs() == {}


async def test_lanes_move_pages_side_by_side_and_the_rest_is_left_to_the_end(side: MakeSide) -> None:
    """What Spark's executors do, in threads."""
    source, target = side("bullmq", "from"), side("bridgemq", "to")
    count = 1200
    await source.add(*(source.job({"n": n}) for n in range(count)))
    options = MoveOptions(source=source.url, target=target.url)
    async with open_move(options) as opened:
        run, _ = await opened.begin()
    packed = msgspec.msgpack.encode(options)
    lanes = await asyncio.gather(*(asyncio.to_thread(move_lane, packed, run.id, lane) for lane in range(2)))
    moved = [msgspec.msgpack.decode(lane, type=MoveReport).count for lane in lanes]
    assert all(moved), "each lane has moved some"
    report = await migrate(options)
    assert (report.is_resumed, report.is_verified, report.total) == (True, True, count), report
    assert sorted(job.data["n"] for job in (await target.jobs()).values()) == list(range(count))
