"""GET /v1/jobs/{id}/events, sentence by sentence, on real sockets."""

import asyncio
import json
from typing import Any

import pytest
import redis

from corral import Corral
from corral.gateway import tails as tails_module
from tests.gateway.conftest import Open
from tests.support.apps import working
from tests.support.foreign_client_streams import ForeignGateway, ForeignWorker
from tests.support.gateway import Gateway
from tests.support.polling import becomes_true, eventually
from tests.support.sse import Event, Tail, stories


def tell(client: redis.Redis, job_id: str, kind: str, data: str = "{}") -> str:
    """An event as a stranger writes it; its id."""
    fields = {"type": kind, "ts": "1767225600000", "step": "stranger", "data": data}
    return client.xadd(f"job:{job_id}:events", fields).decode()


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


# -- what a tail looks like ---------------------------------------------------------------------------------


def test_a_tail_greets_tells_and_ends(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit({"n": 1})
    ForeignWorker(client).work(lambda task, payload: {"ok": True})
    with gateway.tail(job_id) as tail:
        events = list(tail)
    assert tail.status == 200
    assert tail.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert kinds(events) == ["hello", "queued", "running", "done"]
    assert events[0].json["job_id"] == job_id
    ids = [entry.decode() for entry, _ in client.xrange(f"job:{job_id}:events")]
    assert [event.id for event in events[1:]] == ids
    queued = events[1].json
    assert queued.pop("ts") > 0
    assert queued == {"type": "queued", "step": "gateway.enqueue", "data": {}}


def test_the_retry_hint_comes_once_with_the_greeting(opened: Open, client: redis.Redis) -> None:
    gateway = opened(retry_ms=1234)
    job_id = gateway.submit()
    ForeignWorker(client).work(lambda task, payload: {})
    with gateway.tail(job_id) as tail:
        list(tail)
    assert tail.parser.retries == [1234]


@pytest.mark.parametrize("end", ["done", "error", "canceled"])
def test_a_tail_ends_on_each_terminal_event_and_on_no_other(
    gateway: Gateway, client: redis.Redis, end: str
) -> None:
    job_id = gateway.submit()
    for kind in ("running", "progress", "finished", end):
        tell(client, job_id, kind)
    with gateway.tail(job_id) as tail:
        assert kinds(list(tail)) == ["hello", "queued", "running", "progress", "finished", end]


def test_heartbeats_come_while_nothing_happens(opened: Open) -> None:
    gateway = opened(heartbeat_s=0.05)
    with gateway.tail(gateway.submit()) as tail:
        tail.until("queued")
        tail.socket.settimeout(5)
        while len(tail.parser.comments) < 3:
            assert tail.parser.feed(tail._chunk()) == []
    assert set(tail.parser.comments) == {"heartbeat"}


def test_a_job_that_is_not_there_cannot_be_tailed(gateway: Gateway) -> None:
    with gateway.tail("0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55") as tail:
        assert tail.status == 404
        assert json.loads(tail.body)["type"] == "urn:corral:problem:job-not-found"


@pytest.mark.parametrize("job_id", ["x:events", "no such job", "a:deliveries", "é", "x" * 256])
def test_what_cannot_be_a_job_id_is_not_there(gateway: Gateway, client: redis.Redis, job_id: str) -> None:
    client.xadd("job:x:events", {"type": "queued"})
    client.set("job:a:deliveries", 1)
    for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/events"):
        assert gateway.client.get(path).status_code == 404
    assert gateway.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 404


@pytest.mark.parametrize("given", ["abc", "1-2-3", "-1", "1-", str(2**64), f"0-{2**64}", "1 2"])
def test_a_last_id_that_is_none_is_refused(gateway: Gateway, given: str) -> None:
    answer = gateway.client.get(f"/v1/jobs/{gateway.submit()}/events", params={"last_id": given})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:corral:problem:invalid-last-event-id")


# -- strangers' words ---------------------------------------------------------------------------------------


def test_a_strangers_worker_is_tailed_live_though_it_gives_no_hints(
    gateway: Gateway, client: redis.Redis
) -> None:
    job_id = gateway.submit()
    with gateway.tail(job_id) as tail:
        tail.until("queued")
        for number in range(5):
            tell(client, job_id, "progress", json.dumps({"n": number}))
            [event] = tail.until("progress")
            assert event.json["data"] == {"n": number}
        tell(client, job_id, "done")
        assert kinds(list(tail)) == ["done"]


def test_a_strangers_job_can_be_tailed(gateway: Gateway, client: redis.Redis) -> None:
    job_id = ForeignGateway(client).create("chat", {"text": "theirs"})
    ForeignWorker(client).work(lambda task, payload: payload)
    with gateway.tail(job_id) as tail:
        assert kinds(list(tail)) == ["hello", "queued", "running", "done"]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{\n  "a": 1,\r\n  "b": [\n ]\n}', {"a": 1, "b": []}),
        ("no json at all", {"_raw": "no json at all"}),
        ('{"a": "line\\nbreak"}', {"a": "line\nbreak"}),
        ('{"big": 123456789012345678901234567890}', None),
        ("", {}),
    ],
)
def test_data_of_any_shape_stays_one_event(
    gateway: Gateway, client: redis.Redis, written: str, told: Any
) -> None:
    job_id = gateway.submit()
    tell(client, job_id, "progress", written)
    tell(client, job_id, "done")
    with gateway.tail(job_id) as tail:
        events = list(tail)
    assert kinds(events) == ["hello", "queued", "progress", "done"]
    if told is None:
        # digits beyond 64 bits pass as they stand
        assert written in events[2].data
    else:
        assert events[2].json["data"] == told


def test_a_type_with_a_line_break_cannot_make_an_event_of_its_own(
    gateway: Gateway, client: redis.Redis
) -> None:
    job_id = gateway.submit()
    tell(client, job_id, "x\ndata: forged\n\nevent: done")
    tell(client, job_id, "done")
    with gateway.tail(job_id) as tail:
        assert kinds(list(tail)) == ["hello", "queued", "x data: forged  event: done", "done"]


def test_a_job_over_whose_end_is_never_told_does_not_hold_its_tails(
    gateway: Gateway, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies between hash and event leaves such a job."""
    monkeypatch.setattr(tails_module, "UNTOLD_S", 0.2)
    job_id = gateway.submit()
    client.hset(f"job:{job_id}", "status", "done")
    with gateway.tail(job_id) as tail:
        assert kinds(list(tail)) == ["hello", "queued", "gateway.over"]


def test_an_event_key_of_the_wrong_type_ends_its_own_tails_only(
    gateway: Gateway, client: redis.Redis
) -> None:
    good, bad = gateway.submit(), gateway.submit()
    with gateway.tail(good) as fine, gateway.tail(bad) as broken:
        fine.until("queued")
        broken.until("queued")
        client.delete(f"job:{bad}:events")
        client.set(f"job:{bad}:events", "nonsense")
        assert kinds(list(broken)) == ["gateway.broken"]
        tell(client, good, "done")
        assert kinds(list(fine)) == ["done"]


# -- resuming -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["header", "query", "both"])
def test_a_tail_resumes_after_the_event_that_is_named(
    gateway: Gateway, client: redis.Redis, way: str
) -> None:
    job_id = gateway.submit()
    ids = [tell(client, job_id, "progress", json.dumps({"n": n})) for n in range(5)]
    tell(client, job_id, "done")
    options: dict[str, str] = {}
    if way != "query":
        options["last_id"] = ids[2]
    if way != "header":
        # a browser keeps asking for the first address: what it has seen since counts
        options["query"] = f"?last_id={ids[2] if way == 'query' else ids[0]}"
    with gateway.tail(job_id, **options) as tail:
        events = list(tail)
    assert [event.id for event in stories(events)][:2] == ids[3:]
    assert kinds(events) == ["hello", "progress", "progress", "done"]


def test_a_reconnect_after_the_end_gets_what_it_missed_and_the_end(
    gateway: Gateway, client: redis.Redis
) -> None:
    job_id = gateway.submit()
    with gateway.tail(job_id) as tail:
        tail.until("queued")
        seen = tail.last_id
    ForeignWorker(client).work(lambda task, payload: {})
    with gateway.tail(job_id, seen) as tail:
        assert kinds(list(tail)) == ["hello", "running", "done"]
        end = tail.last_id
    for beyond in (end, "9999999999999-0"):
        with gateway.tail(job_id, beyond) as tail:
            assert (tail.status, tail.body) == (204, b"")


def test_a_tail_from_now_on_leaves_out_what_was(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    with gateway.tail(job_id, query="?last_id=$") as tail:
        tail.until("hello")
        tell(client, job_id, "done")
        assert kinds(list(tail)) == ["done"]


async def test_a_client_killed_again_and_again_misses_nothing_and_hears_nothing_twice(
    gateway: Gateway, server: Any
) -> None:
    """A real worker tells 300 steps; the client's socket is reset every few events."""
    app = Corral(server.url, protocol="streams")

    @app.job("embed")
    async def embed(job: Any) -> str:
        for number in range(300):
            await job.emit("step", {"n": number})
            await asyncio.sleep(0.002)
        return "over"

    job_id = gateway.submit()
    found: list[Event] = []
    kills = 0

    def follow() -> None:
        nonlocal kills
        while not found or found[-1].kind != "done":
            tail = gateway.tail(job_id, found[-1].id if found else "")
            for event in stories(list(_some(tail, 23))):
                found.append(event)
            tail.kill()
            kills += 1

    async with app, working(app):
        await asyncio.to_thread(follow)
    assert kills > 10
    assert len({event.id for event in found}) == len(found)
    assert [event.json["data"]["n"] for event in found if event.kind == "event"] == list(range(300))
    assert kinds(found) == ["queued", "running", *["event"] * 300, "done"]


def _some(tail: Tail, count: int) -> Any:
    for number, event in enumerate(tail):
        yield event
        if number == count:
            return


# -- what is gone is said aloud -----------------------------------------------------------------------------


def test_a_trimmed_beginning_is_said_aloud(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    ids = [tell(client, job_id, "progress") for _ in range(5)]
    tell(client, job_id, "done")
    client.xtrim(f"job:{job_id}:events", maxlen=3, approximate=False)
    with gateway.tail(job_id) as tail:
        events = list(tail)
    assert kinds(events) == ["hello", "gateway.gap", "progress", "progress", "done"]
    assert events[1].json == {"after": "0-0", "first": ids[3], "reason": "4 of the job's events are gone"}


def test_a_trimmed_range_behind_the_resume_point_is_said_aloud(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    ids = [tell(client, job_id, "progress") for _ in range(5)]
    tell(client, job_id, "done")
    client.xtrim(f"job:{job_id}:events", maxlen=2, approximate=False)
    with gateway.tail(job_id, ids[1]) as tail:
        events = list(tail)
    assert kinds(events) == ["hello", "gateway.gap", "progress", "done"]
    assert (events[1].json["after"], events[1].json["first"]) == (ids[1], ids[4])


def test_what_is_trimmed_under_a_live_tail_is_said_aloud(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    with gateway.tail(job_id) as tail:
        seen = tail.until("queued")[-1].id
        with client.pipeline(transaction=True) as at_once:
            for kind in ("progress", "progress", "done"):
                at_once.xadd(f"job:{job_id}:events", {"type": kind, "ts": "1", "step": "s", "data": "{}"})
            at_once.xtrim(f"job:{job_id}:events", maxlen=1, approximate=False)
            at_once.execute()
        events = list(tail)
    assert kinds(events) == ["gateway.gap", "done"]
    assert events[0].json["after"] == seen


def test_an_untrimmed_story_has_no_gap_wherever_one_resumes(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    client.xadd(f"job:{job_id}:events", {"type": "progress"}, id="9999999999998-0")
    client.xadd(f"job:{job_id}:events", {"type": "done"}, id="9999999999999-0")
    for resume in ("", "0", "0-0", "9999999999998-0", "9999999999998-7"):
        with gateway.tail(job_id, resume) as tail:
            events = list(tail)
        assert "gateway.gap" not in kinds(events)
        assert events[-1].kind == "done"


def test_events_that_expired_while_the_job_lives_are_said_aloud(
    gateway: Gateway, client: redis.Redis
) -> None:
    job_id = gateway.submit()
    seen = tell(client, job_id, "progress")
    client.delete(f"job:{job_id}:events")
    with gateway.tail(job_id, seen) as tail:
        assert kinds(tail.until("gateway.gap")) == ["hello", "gateway.gap"]


@pytest.mark.parametrize("way", ["expires", "is removed"])
def test_a_tail_whose_job_is_gone_says_so_and_ends(gateway: Gateway, client: redis.Redis, way: str) -> None:
    job_id = gateway.submit()
    with gateway.tail(job_id) as tail:
        tail.until("queued")
        if way == "expires":
            client.pexpire(f"job:{job_id}", 1)
            client.pexpire(f"job:{job_id}:events", 1)
        else:
            client.delete(f"job:{job_id}", f"job:{job_id}:events")
        assert kinds(list(tail)) == ["gateway.expired"]
    with gateway.tail(job_id, tail.last_id) as tail:
        assert tail.status == 404


# -- many readers -------------------------------------------------------------------------------------------


def test_fifty_tails_take_no_connection_of_their_own(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    first = gateway.tail(job_id)
    first.until("queued")
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    before = client.info("clients")["connected_clients"]
    tails = [first, *(gateway.tail(job_id) for _ in range(49))]
    for tail in tails[1:]:
        tail.until("queued")
    assert client.info("clients")["connected_clients"] == before
    assert gateway.hall.tails.count == 50
    tell(client, job_id, "done")
    assert all(kinds(list(tail)) == ["done"] for tail in tails)
    for tail in tails:
        tail.socket.close()
    assert eventually(lambda: gateway.hall.tails.count == 0)


def test_tails_that_join_late_and_early_hear_the_same_story(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    tails = []
    for number in range(6):
        tails.append(gateway.tail(job_id))
        for _ in range(50):
            tell(client, job_id, "progress", json.dumps({"n": number}))
    tell(client, job_id, "done")
    heard = [[event.id for event in stories(list(tail))] for tail in tails]
    assert len(heard[0]) == 302
    assert all(ids == heard[0] for ids in heard)
    for tail in tails:
        tail.socket.close()


def test_more_tails_than_a_client_may_have_are_refused(opened: Open) -> None:
    gateway = opened(tails_per_client=2)
    job_id = gateway.submit()
    with gateway.tail(job_id) as one, gateway.tail(job_id), gateway.tail(job_id) as third:
        assert third.status == 429
        assert json.loads(third.body)["type"] == "urn:corral:problem:too-many-tails"
        assert int(third.headers["retry-after"]) >= 1
        one.kill()
        assert eventually(lambda: gateway.tail(job_id).status == 200)


async def test_a_client_that_goes_away_leaves_nothing_behind(opened: Open) -> None:
    gateway = opened()
    job_id = gateway.submit()
    tails = [gateway.tail(job_id) for _ in range(20)]
    for tail in tails:
        tail.until("queued")
        tail.kill()
    assert await becomes_true(lambda: gateway.hall.tails.count == 0)
    assert await becomes_true(lambda: not gateway.server.server_state.tasks)
    assert gateway.hall._tails_of.total() == 0


def test_a_client_that_does_not_read_is_cut_with_a_message(opened: Open, client: redis.Redis) -> None:
    gateway = opened(stall_s=0.5, sweep_s=0.05, tail_bytes=65_536)
    job_id = gateway.submit()
    tail = gateway.tail(job_id, seconds=20)
    quick = gateway.tail(job_id, seconds=20)
    tail.until("queued")
    size = 0
    while gateway.hall.tails.cut == 0:
        tell(client, job_id, "progress", json.dumps({"filler": "x" * 100_000}))
        size += 100_000
        assert size < 100_000_000, "the client is not cut"
        quick.until("progress")
        eventually(lambda: gateway.hall.tails.cut, 0.01)
    assert gateway.hall.tails.count == 1
    *_, last = _until_the_end(tail)
    assert last.kind == "gateway.cut"
    assert "come back with the last id" in last.json["reason"]
    tell(client, job_id, "done")
    assert quick.until("done")[-1].kind == "done"
    # and the one that was cut comes back for the rest
    with gateway.tail(job_id, tail.last_id, seconds=20) as again:
        missed = stories(list(again))
    assert missed[-1].kind == "done"
    assert missed[0].id != tail.last_id


def _until_the_end(tail: Tail) -> list[Event]:
    events = []
    try:
        for event in tail:
            events.append(event)
    except EOFError:
        pass
    return events
