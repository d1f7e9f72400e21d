"""What a foreign client may write into any key affects that one item, in every reader."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral import Corral, JobState, Queue, Unrecoverable
from corral.core.filter import JobFilter
from corral.errors import RedisWrongTypeError
from corral.spark import events as spark_events
from corral.spark import jobs as spark_jobs
from tests.gateway.conftest import OpenGateway
from tests.support.apps import ended, working
from tests.support.gateway import Gateway
from tests.support.servers import Server
from tests.support.shell import corral
from tests.support.sse import Tail, job_events

QUEUES = (
    ("bullmq", "odd"), ("bullmq", "calm"), ("bridgemq", "odd"), ("bridgemq", "calm"), ("streams", "jobs"),
)  # fmt: skip
Identity = tuple[str, ...]
"""reader, protocol, queue, and the id of a job or an event where it is one"""


# -- a healthy server ---------------------------------------------------------------------------------------


async def fill(app: Corral) -> None:
    """Add jobs to every queue: ended, waiting, delayed and active ones."""
    queues = [app.queue(name, protocol) for protocol, name in QUEUES]
    for queue in queues:
        name = "embed" if queue.protocol.spec.name == "streams" else "send"

        @app.job(name, queue=queue.name, protocol=queue.protocol.spec.name)
        async def send(job: Any) -> Any:
            await job.log("a line")
            await job.progress(50)
            if job.data["n"] % 2:
                raise Unrecoverable("odd")
            return {"n": job.data["n"]}

    added = [(queue, await queue.add(_name(queue), {"n": n})) for queue in queues for n in range(2)]
    for protocol in ("bullmq", "bridgemq", "streams"):
        async with working(app, protocol=protocol):
            for queue, job in added:
                if queue.protocol.spec.name == protocol:
                    await ended(queue, job.id)
    for queue in queues:
        if "delay" in queue.protocol.spec.capabilities:
            await queue.add(_name(queue), {"n": 4}, delay=10**9)
        for n in range(5, 7):
            await queue.add(_name(queue), {"n": n})
        await queue.ports.broker.turn([], 1)


def _name(queue: Queue) -> str:
    return "embed" if queue.protocol.spec.name == "streams" else "send"


@dataclass
class HealthyServer:
    """A server with jobs, what all readers show of it, and how to bring it back to that state."""

    client: redis.Redis
    app: Corral
    gateway: Gateway
    _dumps: dict[bytes, Any] = field(default_factory=dict)
    shown: dict[Identity, Any] = field(default_factory=dict)

    def save(self) -> None:
        keys = sorted(self.client.keys("*"))
        self._dumps = {key: self.client.dump(key) for key in keys}
        self.shown = self.read()
        assert len(self.shown) > 100

    @property
    def keys(self) -> list[bytes]:
        return list(self._dumps)

    def restore(self) -> None:
        with self.client.pipeline() as pipe:
            pipe.flushdb()
            for key, dump in self._dumps.items():
                pipe.restore(key, 0, dump)
            pipe.execute()

    # -- readers --------------------------------------------------------------------------------------------

    def read(self, is_affected: Callable[[Identity], bool] = lambda identity: False) -> dict[Identity, Any]:
        """Return everything that any reader shows; tails are read until they have what is not affected."""
        shown: dict[Identity, Any] = {}
        for read in (self._lists, self._jobs, self._commands, self._lake):
            shown |= dict(read())
        shown |= dict(self._tails(is_affected))
        return shown

    def _get(self, path: str) -> Any:
        response = self.gateway.client.get(path)
        assert response.status_code in (200, 502), (path, response.text)
        return response.json() if response.status_code == 200 else None

    def _lists(self) -> Iterator[tuple[Identity, Any]]:
        listed = self.gateway.client.get("/v1/queues")
        assert listed.status_code == 200, listed.text
        for view in listed.json()["queues"]:
            yield ("queue", view["protocol"], view["queue"]), view
            path = f"/v1/queues/{view['protocol']}/{quote(view['queue'], safe='')}"
            for state in JobState:
                page = self._get(f"{path}/jobs?state={state}") or {"jobs": ()}
                for job in page["jobs"]:
                    yield ("listed", view["protocol"], view["queue"], job["id"]), job
            self._get(f"{path}/workers")
        assert self.gateway.client.get("/metrics").status_code == 200

    def _jobs(self) -> Iterator[tuple[Identity, Any]]:
        for job in (self._get("/v1/jobs?limit=500") or {"jobs": ()})["jobs"]:
            yield ("job", "streams", "jobs", job["job_id"]), job
        for identity in self.shown:
            if identity[0] == "listed":
                _, protocol, queue, job_id = identity
                response = self.gateway.client.get(f"/v1/queues/{protocol}/{queue}/jobs/{job_id}")
                assert response.status_code in (200, 404, 502), response.text
                yield ("detail", protocol, queue, job_id), response.json() if response.is_success else None

    def _commands(self) -> Iterator[tuple[Identity, Any]]:
        for reader, *words in (("ls", "queue", "ls"), ("top", "top", "--once", "--interval", "0.2")):
            said = corral("--json", *words)
            assert said.code == 0, said.err
            for document in said.documents:
                yield (reader, document["protocol"], document["queue"]), document["counts"]
        said = corral("--json", "doctor")
        assert "Traceback" not in said.err
        assert said.documents, said.err

    def _lake(self) -> Iterator[tuple[Identity, Any]]:
        for protocol, name in QUEUES:
            queue = self.app.queue(name, protocol)
            with suppress(RedisWrongTypeError):
                page = self.app.sync(queue.events.page("-", "+", 1000))
                for row in spark_events.record_batch(page.columns, protocol, name).to_pylist():
                    yield ("lake", protocol, name, row["event_id"]), row
            ids, cursor = self.app.sync(queue.ports.snapshot.ids())
            while cursor != "0":
                more, cursor = self.app.sync(queue.ports.snapshot.ids(cursor))
                ids += more
            with suppress(RedisWrongTypeError):
                jobs = self.app.sync(queue.ports.snapshot.read(list(set(ids)), JobFilter()))
                for row in spark_jobs.record_batch(jobs, protocol).to_pylist() if jobs else ():
                    yield ("backfill", protocol, name, row["job_id"]), row

    def _tails(self, is_affected: Callable[[Identity], bool]) -> Iterator[tuple[Identity, Any]]:
        events = {identity for identity in self._event_ids() if not is_affected(identity)}
        with Tail(self.gateway.url, "/v1/events", "0-1@bullmq/calm", seconds=8) as tail:
            assert tail.status == 200
            for event in tail:
                if job_events([event]):
                    event_id, _, key = event.id.partition("@")
                    identity = ("feed", *key.split("/", 1), event_id)
                    yield identity, event.data
                    events.discard(identity)
                if not events:
                    break
        for _, protocol, queue, job_id in [identity for identity in self.shown if identity[0] == "job"]:
            identity = ("tail", protocol, queue, job_id)
            if not is_affected(identity):
                with self.gateway.tail(job_id, seconds=8) as tail:
                    yield identity, [event.data for event in tail.until("queued")]

    def _event_ids(self) -> set[Identity]:
        streams = {"bull:odd:events": ("bullmq", "odd"), "bull:calm:events": ("bullmq", "calm")}
        streams |= {"jobs:events": ("streams", "jobs")}
        ids = set()
        for key, (protocol, queue) in streams.items():
            if self.client.type(key) == b"stream":
                entries = self.client.xrange(key)
                ids |= {("feed", protocol, queue, entry_id.decode()) for entry_id, _ in entries}
        return ids


@pytest.fixture
def healthy(
    server: Server, open_gateway: OpenGateway, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HealthyServer]:
    """A server with jobs of every protocol."""
    monkeypatch.setenv("REDIS_URL", server.url)
    app = Corral(server.url)
    app.sync(fill(app))
    healthy = HealthyServer(client, app, open_gateway(sweep_s=0.05, feed_s=0.02))
    healthy.save()
    # the first reading has no jobs to show one by one
    healthy.save()
    yield healthy
    app.sync(app.close())


# -- what a foreign client may write ------------------------------------------------------------------------

NUMBERS = (
    b"9" * 30,
    b"-" + b"9" * 30,
    b"1e999",
    b"NaN",
    b"1.5",
    b"abc",
    b"",
    b"\xff\xfe\x00",
    b"-1",
    b"9" * 5000,
)
TEXTS = (
    b"[" * 1100 + b"]" * 1100,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"n":' + b"9" * 30 + b"}",
    b'"\\ud800"',
    b'{"queue":7,"type":[],"attempt":"x","backoff":{"jitter":"x"},"schedule":3,"createdAt":1e300}',
    b'{"delay":1e999,"attempts":"x","backoff":{"type":5,"delay":[],"jitter":{}},"removeOnComplete":{"count":"x"}}',
    b"a\r\nb\n\nevent: done\n\n",
    b"null", b"[]", b"7", b"true",
)  # fmt: skip
values = st.sampled_from((*NUMBERS, *TEXTS)) | st.binary(max_size=40)


@dataclass(frozen=True)
class OddWrite:
    """One write into one key, as a foreign client may make it."""

    key: bytes
    is_retyped: bool
    choice: int
    value: bytes
    other: bytes

    def apply(self, client: redis.Redis) -> None:
        kind = client.type(self.key)
        if self.is_retyped:
            client.delete(self.key)
            kinds = [one for one in (b"string", b"list", b"hash", b"zset", b"set", b"stream") if one != kind]
            kind = kinds[self.choice % len(kinds)]
        match kind:
            case b"string":
                client.set(self.key, self.value)
            case b"list":
                client.lpush(self.key, self.value)
            case b"set":
                client.sadd(self.key, self.value)
            case b"zset":
                client.zadd(self.key, {self.value: float(self.choice)})
            case b"hash":
                names = [*sorted(client.hkeys(self.key)), self.other]
                client.hset(self.key, names[self.choice % len(names)], self.value)
            case b"stream":
                last = client.xrevrange(self.key, count=1)
                fields = dict(last[0][1]) if last else {}
                names = [*sorted(fields), self.other]
                fields[names[self.choice % len(names)]] = self.value
                entry_id = f"{2**64 - 1}-1" if self.choice % 7 == 0 and not self.is_retyped else "*"
                client.xadd(self.key, fields, id=entry_id)

    def affects(self, identity: Identity, job_ids: set[str]) -> bool:
        """Return whether what a reader shows under this identity may differ."""
        reader, protocol, queue, *item = identity
        key = self.key.decode()
        owner = next((job_id for job_id in job_ids if job_id in key.split(":")), None)
        parts = key.split(":")
        if parts[0] == "bull":
            where = ("bullmq", parts[1])
        elif parts[0] == "bridge":
            where = ("bridgemq", None)
        else:
            where = ("streams", "jobs")
        if where[0] != protocol or where[1] not in (None, queue):
            return False
        if owner is None:
            # the queue itself; its other jobs are listed where its lists have one member more
            is_event = key.endswith("events") and not self.is_retyped
            if key.endswith(":holders"):
                return True  # a hash with a field for each active job
            return reader == "detail" or (not is_event and (self.is_retyped or not item))
        return not item or item[0] == owner


NAMED_WRITES = [
    OddWrite(b"bull:odd:events", is_retyped=True, choice=0, value=b"x", other=b"x"),
    OddWrite(b"bull:odd:wait", is_retyped=True, choice=0, value=b"x", other=b"x"),
    OddWrite(b"bridge:queues:known", is_retyped=True, choice=0, value=b"x", other=b"x"),
    OddWrite(b"bridge:queues:known", is_retyped=False, choice=0, value=b"", other=b"x"),
    OddWrite(b"bridge:queues:known", is_retyped=False, choice=0, value=b"\x00/?#\xff", other=b"x"),
    OddWrite(b"jobs:events", is_retyped=False, choice=4, value=b"9" * 30, other=b"x"),
]


@st.composite
def odd_writes(draw: st.DrawFn, keys: list[bytes]) -> OddWrite:
    return OddWrite(
        key=draw(st.sampled_from(keys)),
        is_retyped=draw(st.booleans()),
        choice=draw(st.integers(0, 12)),
        value=draw(values),
        other=draw(st.binary(min_size=1, max_size=5)),
    )


def assert_only_the_item_is_affected(healthy: HealthyServer, write: OddWrite) -> None:
    healthy.restore()
    write.apply(healthy.client)
    job_ids = {identity[3] for identity in healthy.shown if identity[0] in ("listed", "job")}

    def is_affected(identity: Identity) -> bool:
        return write.affects(identity, job_ids)

    shown = healthy.read(is_affected)
    for identity, document in healthy.shown.items():
        if not is_affected(identity):
            assert identity in shown, (write, identity, "is not shown")
            assert shown[identity] == document, (write, identity)


def check_writes(healthy: HealthyServer, examples: int) -> None:
    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(write=odd_writes(healthy.keys))
    def check(write: OddWrite) -> None:
        assert_only_the_item_is_affected(healthy, write)

    check()


@pytest.mark.timeout(120)
def test_arbitrary_bytes_in_any_key_affect_one_item_in_every_reader(healthy: HealthyServer) -> None:
    for write in NAMED_WRITES:
        assert_only_the_item_is_affected(healthy, write)
    check_writes(healthy, 5)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_many_arbitrary_bytes_affect_one_item_in_every_reader(healthy: HealthyServer) -> None:
    check_writes(healthy, 300)


# -- how it is shown ----------------------------------------------------------------------------------------


def test_fields_that_cannot_be_read_are_shown_as_broken(gateway: Gateway, client: redis.Redis) -> None:
    long = b"9" * 30
    client.hset("bull:mail:meta", "opts.maxLenEvents", 100)
    client.lpush("bull:mail:wait", "1", "2")
    client.hset("bull:mail:1", mapping={"name": "send", "data": "{}", "opts": "{}", "timestamp": 1})
    client.hset("bull:mail:2", mapping={"name": b"\xff", "data": "{}", "attemptsMade": "many"})
    client.xadd("bull:mail:events", {"event": "retries-exhausted", "jobId": "2", "attemptsMade": "many"})
    odd = gateway.submit()
    client.hset(f"job:{odd}", "created_ts", long)
    client.xadd(f"job:{odd}:events", {"type": "done", "ts": long, "step": "s", "data": "{}"})
    page = gateway.client.get("/v1/queues/bullmq/mail/jobs?state=waiting").json()["jobs"]
    assert [(job["id"], job["extra"]) for job in page] == [
        ("1", {}),
        ("2", {"_broken": {"attemptsMade": "many"}}),
    ]
    [event] = gateway.client.get("/v1/queues/bullmq/mail/jobs/2").json()["events"]
    assert event["data"] == {"_broken": {"attemptsMade": "many"}}
    job = gateway.client.get(f"/v1/jobs/{odd}").json()
    assert (job["created_ts"], job["_broken"]) == (0, {"created_ts": long.decode()})
    with gateway.tail(odd) as tail:
        *_, last = tail
    assert last.json["_broken"] == {"ts": long.decode()}
    assert last.json["ts"] == int(last.id.partition("-")[0])


def test_a_job_that_is_another_kind_of_key_is_shown_as_broken(gateway: Gateway, client: redis.Redis) -> None:
    client.hset("bull:mail:meta", "opts.maxLenEvents", 100)
    client.lpush("bull:mail:wait", "1")
    client.set("bull:mail:1", "text")
    [job] = gateway.client.get("/v1/queues/bullmq/mail/jobs?state=waiting").json()["jobs"]
    assert job["id"] == "1"
    assert "WRONGTYPE" in job["extra"]["_broken"]["job"]


def test_a_queue_with_a_key_of_another_type_is_shown_as_broken(
    gateway: Gateway, client: redis.Redis, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    for name in ("good", "bad"):
        client.hset(f"bull:{name}:meta", "opts.maxLenEvents", 100)
    client.set("bull:bad:wait", "text")
    views = {view["queue"]: view for view in gateway.client.get("/v1/queues").json()["queues"]}
    assert "another type" in views["bad"]["error"]
    assert "error" not in views["good"]
    said = corral("queue", "ls", "--protocol", "bullmq")
    assert said.code == 0
    assert "queue 'bad' of protocol 'bullmq' cannot be read" in said.out
    assert "broken" in corral("top", "--once", "--interval", "0.2").out
    assert "queue 'bad' of protocol 'bullmq' cannot be read" in corral("doctor").out
