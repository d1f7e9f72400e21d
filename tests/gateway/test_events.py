"""GET /v1/jobs/{id}/events, on real sockets."""

import asyncio
import json
import selectors
import socket
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from corral import Corral
from corral.gateway.sse import hub
from corral.protocols.streams.scripts import SCRIPTS
from tests.gateway.conftest import OpenGateway
from tests.support.apps import working
from tests.support.foreign_client_streams import ForeignGateway, ForeignWorker
from tests.support.gateway import Gateway, emit, problem_of
from tests.support.polling import becomes_true, eventually
from tests.support.proxy import Proxy, ProxyFault, runs_script
from tests.support.sse import Event, Tail, job_events


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


# -- one tail -----------------------------------------------------------------------------------------------


def test_a_tail_sends_hello_then_all_events_and_ends(gateway: Gateway, client: redis.Redis) -> None:
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


def test_the_retry_hint_is_sent_once_with_hello(open_gateway: OpenGateway, client: redis.Redis) -> None:
    gateway = open_gateway(retry_ms=1234)
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
        emit(client, job_id, kind)
    with gateway.tail(job_id) as tail:
        assert kinds(list(tail)) == ["hello", "queued", "running", "progress", "finished", end]


def test_heartbeats_are_sent_while_nothing_happens(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(heartbeat_s=0.05)
    with gateway.tail(gateway.submit()) as tail:
        tail.until("queued")
        tail.socket.settimeout(5)
        while len(tail.parser.comments) < 3:
            assert tail.parser.feed(tail._chunk()) == []
    assert set(tail.parser.comments) == {"heartbeat"}


def test_a_job_that_does_not_exist_cannot_be_tailed(gateway: Gateway) -> None:
    with gateway.tail("0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55") as tail:
        assert tail.status == 404
        assert json.loads(tail.body)["type"] == "urn:corral:problem:job-not-found"


@pytest.mark.parametrize("job_id", ["x:events", "no such job", "a:deliveries", "é", "x" * 256])
def test_an_invalid_job_id_is_not_found(gateway: Gateway, client: redis.Redis, job_id: str) -> None:
    client.xadd("job:x:events", {"type": "queued"})
    client.set("job:a:deliveries", 1)
    for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/events"):
        assert gateway.client.get(path).status_code == 404
    assert gateway.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 404


@pytest.mark.parametrize("last_id", ["abc", "1-2-3", "-1", "1-", str(2**64), f"0-{2**64}", "1 2"])
def test_an_invalid_last_id_is_refused(gateway: Gateway, last_id: str) -> None:
    response = gateway.client.get(f"/v1/jobs/{gateway.submit()}/events", params={"last_id": last_id})
    assert problem_of(response) == (400, "invalid-last-event-id")


# -- events of foreign programs -----------------------------------------------------------------------------


def test_events_of_a_foreign_worker_are_sent_live_without_hints(
    gateway: Gateway, client: redis.Redis
) -> None:
    job_id = gateway.submit()
    with gateway.tail(job_id) as tail:
        tail.until("queued")
        for number in range(5):
            emit(client, job_id, "progress", json.dumps({"n": number}))
            [event] = tail.until("progress")
            assert event.json["data"] == {"n": number}
        emit(client, job_id, "done")
        assert kinds(list(tail)) == ["done"]


def test_a_job_of_a_foreign_gateway_can_be_tailed(gateway: Gateway, client: redis.Redis) -> None:
    job_id = ForeignGateway(client).create("chat", {"text": "theirs"})
    ForeignWorker(client).work(lambda task, payload: payload)
    with gateway.tail(job_id) as tail:
        assert kinds(list(tail)) == ["hello", "queued", "running", "done"]


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{\n  "a": 1,\r\n  "b": [\n ]\n}', {"a": 1, "b": []}),
        ("no json at all", {"_raw": "no json at all"}),
        ('{"a": "line\\nbreak"}', {"a": "line\nbreak"}),
        ('{"big": 123456789012345678901234567890}', None),
        ("", {}),
    ],
)
def test_data_of_any_shape_stays_one_event(
    gateway: Gateway, client: redis.Redis, written: str, sent: Any
) -> None:
    job_id = gateway.submit()
    emit(client, job_id, "progress", written)
    emit(client, job_id, "done")
    with gateway.tail(job_id) as tail:
        events = list(tail)
    assert kinds(events) == ["hello", "queued", "progress", "done"]
    if sent is None:
        # numbers beyond 64 bits are passed on unchanged
        assert written in events[2].data
    else:
        assert events[2].json["data"] == sent


def test_a_type_with_a_line_break_cannot_forge_an_event(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    emit(client, job_id, "x\ndata: forged\n\nevent: done")
    emit(client, job_id, "done")
    with gateway.tail(job_id) as tail:
        assert kinds(list(tail)) == ["hello", "queued", "x data: forged  event: done", "done"]


def test_tails_of_a_job_that_ended_without_a_last_event_end(
    gateway: Gateway, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies between the two writes leaves such a job."""
    monkeypatch.setattr(hub, "FINAL_EVENT_S", 0.2)
    job_id = gateway.submit()
    client.hset(f"job:{job_id}", "status", "done")
    with gateway.tail(job_id) as tail:
        assert kinds(list(tail)) == ["hello", "queued", "gateway.ended"]


def test_an_event_key_of_the_wrong_type_ends_only_its_own_tails(
    gateway: Gateway, client: redis.Redis
) -> None:
    good, bad = gateway.submit(), gateway.submit()
    with gateway.tail(good) as fine, gateway.tail(bad) as broken:
        fine.until("queued")
        broken.until("queued")
        client.delete(f"job:{bad}:events")
        client.set(f"job:{bad}:events", "nonsense")
        assert kinds(list(broken)) == ["gateway.error"]
        emit(client, good, "done")
        assert kinds(list(fine)) == ["done"]


# -- resuming -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["header", "query", "both"])
def test_a_tail_resumes_after_the_last_event_id(gateway: Gateway, client: redis.Redis, way: str) -> None:
    job_id = gateway.submit()
    ids = [emit(client, job_id, "progress", json.dumps({"n": n})) for n in range(5)]
    emit(client, job_id, "done")
    options: dict[str, str] = {}
    if way != "query":
        options["last_id"] = ids[2]
    if way != "header":
        # a browser repeats the first URL: the header is newer
        options["query"] = f"?last_id={ids[2] if way == 'query' else ids[0]}"
    with gateway.tail(job_id, **options) as tail:
        events = list(tail)
    assert [event.id for event in job_events(events)][:2] == ids[3:]
    assert kinds(events) == ["hello", "progress", "progress", "done"]


def test_a_reconnect_after_the_end_gets_the_missed_events_and_then_204(
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


def test_a_tail_from_now_on_omits_earlier_events(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    with gateway.tail(job_id, query="?last_id=$") as tail:
        tail.until("hello")
        emit(client, job_id, "done")
        assert kinds(list(tail)) == ["done"]


async def test_a_client_that_reconnects_again_and_again_receives_each_event_once(
    gateway: Gateway, server: Any
) -> None:
    """A worker emits 300 events; the client's connection is reset every few of them."""
    app = Corral(server.url, protocol="streams")

    @app.job("embed")
    async def embed(job: Any) -> str:
        for number in range(300):
            await job.emit("step", {"n": number})
            await asyncio.sleep(0.002)
        return "over"

    job_id = gateway.submit()
    received: list[Event] = []
    kills = 0

    def follow() -> None:
        nonlocal kills
        while not received or received[-1].kind != "done":
            tail = gateway.tail(job_id, received[-1].id if received else "")
            for event in job_events(list(_some(tail, 23))):
                received.append(event)
            tail.kill()
            kills += 1

    async with app, working(app):
        await asyncio.to_thread(follow)
    assert kills > 10
    assert len({event.id for event in received}) == len(received)
    assert [event.json["data"]["n"] for event in received if event.kind == "event"] == list(range(300))
    assert kinds(received) == ["queued", "running", *["event"] * 300, "done"]


def _some(tail: Tail, count: int) -> Any:
    for number, event in enumerate(tail):
        yield event
        if number == count:
            return


# -- gaps ---------------------------------------------------------------------------------------------------


def test_a_trimmed_beginning_is_reported_as_a_gap(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    ids = [emit(client, job_id, "progress") for _ in range(5)]
    emit(client, job_id, "done")
    client.xtrim(f"job:{job_id}:events", maxlen=3, approximate=False)
    with gateway.tail(job_id) as tail:
        events = list(tail)
    assert kinds(events) == ["hello", "gateway.gap", "progress", "progress", "done"]
    assert events[1].json == {"after": "0-0", "first": ids[3], "reason": "4 of the job's events are gone"}


def test_a_trimmed_range_after_the_last_event_id_is_reported_as_a_gap(
    gateway: Gateway, client: redis.Redis
) -> None:
    job_id = gateway.submit()
    ids = [emit(client, job_id, "progress") for _ in range(5)]
    emit(client, job_id, "done")
    client.xtrim(f"job:{job_id}:events", maxlen=2, approximate=False)
    with gateway.tail(job_id, ids[1]) as tail:
        events = list(tail)
    assert kinds(events) == ["hello", "gateway.gap", "progress", "done"]
    assert (events[1].json["after"], events[1].json["first"]) == (ids[1], ids[4])


def test_events_trimmed_during_a_tail_are_reported_as_a_gap(gateway: Gateway, client: redis.Redis) -> None:
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


def test_untrimmed_events_have_no_gap_wherever_a_tail_resumes(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    client.xadd(f"job:{job_id}:events", {"type": "progress"}, id="9999999999998-0")
    client.xadd(f"job:{job_id}:events", {"type": "done"}, id="9999999999999-0")
    for resume in ("", "0", "0-0", "9999999999998-0", "9999999999998-7"):
        with gateway.tail(job_id, resume) as tail:
            events = list(tail)
        assert "gateway.gap" not in kinds(events)
        assert events[-1].kind == "done"


def test_a_last_event_id_in_the_future_is_reported_as_a_gap(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    last = emit(client, job_id, "progress")
    with gateway.tail(job_id, "9999999999999-0") as tail:
        *_, gap = tail.until("gateway.gap")
        assert gap.json["after"] == "9999999999999-0"
        assert last in gap.json["reason"]
        emit(client, job_id, "done")
        assert kinds(list(tail)) == ["done"]


def test_a_feeds_last_event_id_in_the_future_is_reported_as_a_gap(
    gateway: Gateway, client: redis.Redis
) -> None:
    gateway.submit()
    with Tail(gateway.url, "/v1/events", "9999999999999-0@streams/jobs") as feed:
        assert kinds(feed.until("gateway.gap")) == ["hello", "gateway.gap"]
        gateway.submit()
        assert feed.until("added")[-1].json["queue"] == "jobs"


def test_expired_events_of_a_job_that_exists_are_reported_as_a_gap(
    gateway: Gateway, client: redis.Redis
) -> None:
    job_id = gateway.submit()
    seen = emit(client, job_id, "progress")
    client.delete(f"job:{job_id}:events")
    with gateway.tail(job_id, seen) as tail:
        assert kinds(tail.until("gateway.gap")) == ["hello", "gateway.gap"]


@pytest.mark.parametrize("way", ["expires", "is removed"])
def test_a_tail_whose_job_is_gone_ends_with_expired(gateway: Gateway, client: redis.Redis, way: str) -> None:
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


def test_fifty_tails_use_one_connection(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    first = gateway.tail(job_id)
    first.until("queued")
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    before = client.info("clients")["connected_clients"]
    tails = [first, *(gateway.tail(job_id) for _ in range(49))]
    for tail in tails[1:]:
        tail.until("queued")
    assert client.info("clients")["connected_clients"] == before
    assert gateway.state.tails.count == 50
    emit(client, job_id, "done")
    assert all(kinds(list(tail)) == ["done"] for tail in tails)
    for tail in tails:
        tail.socket.close()
    assert eventually(lambda: gateway.state.tails.count == 0)


def test_tails_that_start_late_and_early_receive_the_same_events(
    gateway: Gateway, client: redis.Redis
) -> None:
    job_id = gateway.submit()
    tails = []
    for number in range(6):
        tails.append(gateway.tail(job_id))
        for _ in range(50):
            emit(client, job_id, "progress", json.dumps({"n": number}))
    emit(client, job_id, "done")
    received = [[event.id for event in job_events(list(tail))] for tail in tails]
    assert len(received[0]) == 302
    assert all(ids == received[0] for ids in received)
    for tail in tails:
        tail.socket.close()


def test_more_tails_than_a_client_may_have_are_refused(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(tails_per_client=2)
    job_id = gateway.submit()
    with gateway.tail(job_id) as first, gateway.tail(job_id), gateway.tail(job_id) as third:
        assert third.status == 429
        assert json.loads(third.body)["type"] == "urn:corral:problem:too-many-tails"
        assert int(third.headers["retry-after"]) >= 1
        first.kill()
        assert eventually(lambda: gateway.tail(job_id).status == 200)


async def test_a_client_that_disconnects_leaves_nothing_behind(open_gateway: OpenGateway) -> None:
    gateway = open_gateway()
    job_id = gateway.submit()
    tails = [gateway.tail(job_id) for _ in range(20)]
    for tail in tails:
        tail.until("queued")
        tail.kill()
    assert await becomes_true(lambda: gateway.state.tails.count == 0)
    assert await becomes_true(lambda: not gateway.server.server_state.tasks)
    assert gateway.state._tails_by_client.total() == 0


def test_no_more_tails_start_at_once_than_a_client_may_have(open_gateway: OpenGateway, proxy: Proxy) -> None:
    gateway = open_gateway(f"{proxy.url}?socket_timeout=60", tails_per_client=3, redis_timeout_s=60)
    request = f"GET /v1/jobs/{gateway.submit()}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    # while Redis is silent every request has begun and none has its job
    proxy.rule(runs_script(SCRIPTS["tail_state"].sha), ProxyFault.HELD, times=20)
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=30))
            for _ in range(20)
        ]
        for connection in connections:
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ)
        assert eventually(lambda: len(selector.select(0)) == 17, seconds=30)
        proxy.let_go()
        statuses = [connection.recv(12) for connection in connections]
    assert statuses.count(b"HTTP/1.1 200") == 3
    assert statuses.count(b"HTTP/1.1 429") == 17


def test_a_tail_that_was_refused_takes_no_place(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(tails_per_client=1)
    for _ in range(3):
        with gateway.tail("0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55") as tail:
            assert tail.status == 404
    assert not gateway.state._tails_by_client


HANG_UPS = {
    "a tail": "GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tail with a request behind it": "GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /liv",
    "a wait": "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    'Prefer: wait=30\r\nContent-Length: 31\r\n\r\n{{"task": "chat", "payload": {{}}}}',
}


@pytest.mark.parametrize("case", HANG_UPS)
def test_a_client_that_hangs_up_frees_its_place_at_once(open_gateway: OpenGateway, case: str) -> None:
    gateway = open_gateway()
    request = HANG_UPS[case].format(job_id=gateway.submit()).encode()
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        connection.sendall(request)
        assert eventually(lambda: gateway.state._tails_by_client.total() == 1)
        assert eventually(lambda: gateway.state.tails.count == 1)
    assert eventually(lambda: gateway.state._tails_by_client.total() == 0, seconds=3)
    assert eventually(lambda: gateway.state.tails.count == 0, seconds=3)


def test_what_is_read_ahead_for_a_tail_is_limited_by_bytes(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    gateway = open_gateway(tail_bytes=200_000, send_timeout_s=30)
    job_id = gateway.submit()
    for _ in range(100):
        emit(client, job_id, "progress", json.dumps({"filler": "x" * 90_000}))
    with gateway.tail(job_id, seconds=20) as tail:
        [open_tail] = gateway.state.tails._tails[job_id]
        # the kernel has some, the transport some: the rest waits in Redis
        assert eventually(lambda: open_tail.buffer.is_full)
        assert not eventually(lambda: open_tail.buffer._size > 200_000, seconds=0.3)
        emit(client, job_id, "done")
        assert kinds(list(tail)) == ["hello", "queued", *["progress"] * 100, "done"]


def test_an_event_larger_than_a_tails_buffer_is_sent_all_the_same(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    gateway = open_gateway(tail_bytes=2048, sweep_s=0.05)
    job_id = gateway.submit()
    for size in (10, 500_000, 10, 500_000, 500_000):
        emit(client, job_id, "progress", json.dumps({"filler": "x" * size}))
    emit(client, job_id, "done")
    with gateway.tail(job_id) as tail:
        assert kinds(list(tail)) == ["hello", "queued", *["progress"] * 5, "done"]


def test_a_client_that_does_not_read_is_disconnected_with_a_last_event(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    gateway = open_gateway(send_timeout_s=0.5, sweep_s=0.05, tail_bytes=65_536)
    job_id = gateway.submit()
    tail = gateway.tail(job_id, seconds=20)
    quick = gateway.tail(job_id, seconds=20)
    tail.until("queued")
    size = 0
    while gateway.state.tails.timed_out == 0:
        emit(client, job_id, "progress", json.dumps({"filler": "x" * 100_000}))
        size += 100_000
        assert size < 100_000_000, "the client is not disconnected"
        quick.until("progress")
        eventually(lambda: gateway.state.tails.timed_out, 0.01)
    assert gateway.state.tails.count == 1
    *_, last = _until_the_end(tail)
    assert last.kind == "gateway.timeout"
    assert "reconnect with the last id" in last.json["reason"]
    emit(client, job_id, "done")
    assert quick.until("done")[-1].kind == "done"
    # the disconnected client reconnects and receives the rest
    with gateway.tail(job_id, tail.last_id, seconds=20) as again:
        missed = job_events(list(again))
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
