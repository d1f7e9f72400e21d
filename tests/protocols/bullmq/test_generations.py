"""What BullMQ 6 does otherwise than 5.62.0, compared with Node 6.7.0; queues that go from one to the other.

The other files of this folder run with both too (conftest.py).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from corral import Corral
from corral.core.ports import Limit
from corral.errors import GenerationMismatch, InvalidOptions
from corral.protocols.bullmq.inspector import BullmqInspector
from tests.protocols.bullmq.paired_calls import on_queue
from tests.protocols.bullmq.paired_flows import PairedQueues, job
from tests.protocols.bullmq.paired_outcomes import Done, Failed
from tests.protocols.bullmq.paired_queue import PairedQueue
from tests.protocols.bullmq.shared_queue import QUEUE, SharedQueue
from tests.support.node import Node
from tests.support.polling import becomes_true
from tests.support.servers import Server

MakePair = Callable[..., Awaitable[PairedQueue]]
MakePairs = Callable[..., Awaitable[PairedQueues]]

six = pytest.mark.parametrize("node", [6], indirect=True)

LAST = {"id": "a", "keepLastIfActive": True}
LAST_FOR_A_TIME = {**LAST, "ttl": 60_000}
LAST_EXTENDED = {**LAST_FOR_A_TIME, "extend": True}
LAST_REPLACED = {**LAST, "replace": True}


# -- the list `paused` --------------------------------------------------------------------------------------


@six
async def test_a_paused_queue_has_one_list(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.pause()
    await queue.add_many([("send", {}, {}), ("send", {}, {"lifo": True}), ("send", {}, {"priority": 2})])
    assert await queue.claim(5) == []
    assert queue.entry("wait") == [b"2", b"1", b"3"]
    await queue.resume()
    assert await queue.claim(5) == ["3", "1", "2", "4"]


@six
@pytest.mark.parametrize("waiting", [(), ("b",)], ids=["alone", "beside others"])
async def test_resuming_takes_in_what_a_paused_queue_of_5_left(
    paired_queue: MakePair, waiting: tuple[str, ...]
) -> None:
    queue = await paired_queue()
    for job_id in ("a", *waiting, "c"):
        await queue.add("send", jobId=job_id)
    await queue.pause()
    queue.plant("LREM", "wait", 0, "a")
    queue.plant("LREM", "wait", 0, "c")
    queue.plant("RPUSH", "paused", "c", "a")
    await queue.resume()
    assert await queue.claim(5) == ["a", "c", *waiting]


@pytest.mark.parametrize("node", [5], indirect=True)
async def test_no_job_is_lost_where_clients_of_two_generations_used_a_queue(
    paired_queue: MakePair, server: Server
) -> None:
    """Node 5 overwrites one list by the other there."""
    queue = await paired_queue()
    await queue.add_many([("send", {}, {})] * 3)
    with server.connect() as client:
        client.rpush("corral:mail:paused", "4", "5")
    await queue.operator.pause()
    await queue.operator.resume()
    assert queue.entry("wait") == [b"4", b"5", b"3", b"2", b"1"]
    assert queue.entry("paused") is None


@six
@pytest.mark.parametrize("count", [1, 1000])
async def test_obliterating_takes_both_lists_and_the_marker(paired_queue: MakePair, count: int) -> None:
    queue = await paired_queue()
    await queue.add_many([("send", {}, {"jobId": name}) for name in "abcd"])
    queue.plant("LREM", "wait", 0, "a")
    queue.plant("RPUSH", "paused", "a")
    await queue.add("send", delay=500)
    await on_queue(queue, "obliterate", [{"count": count}], queue.operator.obliterate(count=count))
    assert queue.entry("meta") is None
    assert queue.entry("marker") is None


# -- deduplication ------------------------------------------------------------------------------------------


@six
@pytest.mark.parametrize("mode", [LAST, LAST_FOR_A_TIME, LAST_EXTENDED, LAST_REPLACED], ids=str)
@pytest.mark.parametrize("opts", [{}, {"delay": 50}, {"priority": 3}, {"lifo": True}], ids=str)
@pytest.mark.parametrize("ending", [Done, Failed])
async def test_the_last_job_added_while_another_is_active_follows_it(
    paired_queue: MakePair, mode: dict[str, Any], opts: dict[str, Any], ending: Any
) -> None:
    queue = await paired_queue()
    await queue.add("send", {"n": 1}, deduplication=mode)
    await queue.claim()
    for n in (2, 3):
        assert await queue.add("send", {"n": n}, deduplication=mode, **opts) == "1"
    assert queue.entry("dn:a")["data"] == b'{"n":3}'
    await queue.turn([ending("1")])
    assert queue.entry("dn:a") is None
    assert queue.entry("de:a") == b"3"
    await queue.advance(60)
    assert await queue.claim() == ["3"]
    assert queue.claimed("3").data == {"n": 3}
    await queue.complete("3")
    assert queue.entry("de:a") is None


@six
async def test_the_last_job_has_the_id_that_it_was_given(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", deduplication=LAST)
    await queue.claim()
    await queue.add("send", jobId="mine", deduplication=LAST)
    await queue.pause()
    await queue.complete("1")
    await queue.resume()
    assert await queue.claim() == ["mine"]


@six
async def test_a_removed_job_takes_the_one_that_would_follow_with_it(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", deduplication=LAST)
    await queue.claim()
    await queue.add("send", deduplication=LAST)
    queue.abandon("1")
    await queue.remove("1")
    assert queue.entry("dn:a") is None
    assert await queue.add("send", deduplication=LAST) == "3"


@six
@pytest.mark.parametrize("mode", [{"id": "a"}, {"id": "a", "replace": True}, LAST, LAST_EXTENDED], ids=str)
async def test_a_deduplication_whose_job_was_lost_ends(paired_queue: MakePair, mode: dict[str, Any]) -> None:
    queue = await paired_queue()
    await queue.add("send", deduplication={"id": "a"})
    queue.forget("1", "wait")
    assert await queue.add("send", deduplication=mode) == "2"


@six
async def test_adding_again_reschedules_a_delayed_job(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    mode = {"id": "a", "reschedule": True}
    await queue.add("send", deduplication=mode, delay=5_000)
    await queue.add("send", deduplication=mode, delay=9_000)
    assert await queue.add("send", deduplication=mode) == "1"
    await queue.advance(1)
    assert await queue.claim() == ["1"]
    await queue.add("send", deduplication=mode, delay=9_000)


# -- the rest -----------------------------------------------------------------------------------------------


@six
async def test_the_rate_limit_does_not_count_jobs_that_are_only_to_fail(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.set_limit(Limit(2, 600_000))
    await queue.add_many([("send", {}, {})] * 6)
    for job_id in ("1", "2", "4"):
        queue.plant("HSET", job_id, "defa", "no more")
    assert await queue.claim(6) == ["1", "2", "3", "4", "5"]
    assert queue.entry("limiter") == b"2"


@six
@pytest.mark.parametrize("state", ["failed", "completed"])
async def test_retrying_keeps_priorities_and_brings_children_back(
    paired_queues: MakePairs, state: str
) -> None:
    queues = await paired_queues("mail", "pay")
    ignored = job("c", "pay", priority=2, ignoreDependencyOnFailure=True)
    await queues.add_flow(job("top", "mail", job("a", "pay", priority=5), job("b", "pay"), ignored))
    pay = queues["pay"]
    await pay.claim(3)
    await pay.turn([Done(each) if state == "completed" else Failed(each) for each in ("a", "b", "c")])
    await pay.retry("a")
    await pay.retry("c")
    assert [member for member, _ in pay.entry("prioritized")] == [b"c", b"a"]
    await on_queue(pay, "retryJobs", [{"state": state}], pay.operator.retry_all(state))
    assert len(queues["mail"].entry("top:dependencies")) == 3


@six
async def test_a_claim_after_a_retry_leaves_the_marker_as_node_does(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add_many([("send", {}, {"attempts": 2, "backoff": 500})] * 2)
    await queue.claim()
    queue.take_markers()
    assert await queue.fail("1", want=1) == ["2"]
    assert queue.entry("marker") == [(b"0", 0)]
    queue.take_markers()
    assert await queue.fail("2", want=1) == []
    assert [member for member, _ in queue.entry("marker")] == [b"1"]


# -- which generation a queue is of -------------------------------------------------------------------------


async def test_a_queue_of_another_generation_is_refused_and_left_as_it_is(url: str, server: Server) -> None:
    async with Corral(url) as app:
        await app.queue("mail").add("send", {"n": 1})
    with server.connect() as client:
        assert client.hget("bull:mail:meta", "version") == b"bullmq:5.62.0"
        async with Corral(url, bullmq=6) as app:
            before = client.dbsize()
            with pytest.raises(GenerationMismatch, match=r"'mail' is of BullMQ 5 .*Corral\(bullmq=5\)"):
                await app.queue("mail").add("send", {"n": 2})
            assert client.dbsize() == before
            assert client.llen("bull:mail:wait") == 1
            await app.queue("post").add("send", {"n": 3})
        assert client.hget("bull:post:meta", "version") == b"bullmq:6.7.0"
    async with Corral(url) as app:
        assert (await BullmqInspector(app.binding(app.queue("post"))).generation()) == 6
        await app.queue("post").pause()
        await app.queue("post").add("send", {"n": 4})
        assert await app.queue("post").counts()
    with server.connect() as client:
        assert client.llen("bull:post:wait") == 2


async def test_a_queue_without_a_version_is_of_the_generation_that_was_given(
    url: str, server: Server
) -> None:
    """The official Python client writes none."""
    with server.connect() as client:
        client.hset("bull:mail:meta", "opts.maxLenEvents", "10000")
    async with Corral(url, bullmq=6) as app:
        await app.queue("mail").add("send", {})
    with server.connect() as client:
        assert client.hget("bull:mail:meta", "version") == b"bullmq:6.7.0"


async def test_a_worker_ends_where_its_queue_is_of_another_generation(url: str) -> None:
    async with Corral(url) as app:
        await app.queue("mail").add("send", {})
    app = Corral(url, bullmq=6)

    @app.job("send", queue="mail")
    async def send() -> None: ...

    with pytest.raises(GenerationMismatch, match="stop its clients of BullMQ 5"):
        await app.run()


@pytest.mark.parametrize("given", [4, 7, "x"])
def test_another_number_is_refused(given: Any) -> None:
    with pytest.raises(InvalidOptions, match="use 5 or 6, or leave it out"):
        Corral(bullmq=given)


def test_the_environment_may_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_BULLMQ", "6")
    app = Corral()
    assert app.generation(app.queue("mail").protocol) == 6
    monkeypatch.setenv("CORRAL_BULLMQ", "six")
    with pytest.raises(InvalidOptions, match="bullmq is 'six'"):
        Corral()


@pytest.mark.parametrize("node", [5], indirect=True)
async def test_a_queue_that_node_upgrades_goes_on(
    shared: SharedQueue, node_process: Callable[[int], Node], server: Server
) -> None:
    """Paused under 5 with jobs of every kind; then Node 6 opens it, and Corral resumes and works it."""
    queue, meta = shared.queue, f"bull:{QUEUE}:meta"
    await queue.add("send", {"n": 1})
    await queue.pause()
    await queue.add("send", {"n": 2})
    newer = node_process(6)
    try:
        where = {"name": QUEUE, "prefix": "bull", "url": server.url}
        await newer("openQueue", handle="queue", **where, opts={"skipMetasUpdate": False})
        with server.connect() as client:
            assert await becomes_true(lambda: client.hget(meta, "version") == b"bullmq:6.7.0")
        await newer("add", queue="queue", name="send", data={"n": 3}, opts={})
        await queue.add("send", {"n": 4})
        with server.connect() as client:
            assert client.llen(f"bull:{QUEUE}:paused") == 2
            assert client.llen(f"bull:{QUEUE}:wait") == 2
        [_, stranded] = await queue.ports.inspector.notices()
        assert stranded.mend == f"corral queue resume {QUEUE} --protocol bullmq"
        await queue.resume()
        assert len(await queue.ports.inspector.notices()) == 1
        turn = await queue.ports.broker.turn([], 9)
        assert [claim.job.data["n"] for claim in turn.claims] == [1, 2, 3, 4]
    finally:
        await newer("closeAll")
