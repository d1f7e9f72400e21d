"""The comparison of two keyspaces sees every difference that matters, and only those."""

from typing import Any

import pytest

from tests.support.compare import Period, differences
from tests.support.keyspace import Entry, Keyspace, look
from tests.support.servers import Server

JOB = {
    "name": b"send", "data": b'{"to":"ann","n":[]}', "opts": b'{"attempts":3,"kl":5}', "timestamp": b"1000",
    "delay": b"0", "priority": b"0", "processedOn": b"1100", "finishedOn": b"1200", "failedReason": b"no",
    "returnvalue": b'{"a":1}', "stacktrace": b'["at work"]', "ats": b"1", "atm": b"1", "pb": b"anna",
}  # fmt: skip
EVENTS = [
    ("1-0", [("event", b"added"), ("jobId", b"1"), ("name", b"send")]),
    ("1-1", [("event", b"waiting"), ("jobId", b"1")]),
    ("2-0", [("event", b"delayed"), ("jobId", b"1"), ("delay", b"1150")]),
]


def space(**changed: Any) -> Keyspace:
    """A keyspace with something of every type; `lock=…` and so on change one of its keys."""
    entries: Keyspace = {
        "1": Entry("hash", dict(JOB)),
        "1:lock": Entry("string", b"token-a", 30_000),
        "2:lock": Entry("string", b"token-a", 30_000),
        "3:lock": Entry("string", b"token-b", 30_000),
        "meta": Entry("hash", {"opts.maxLenEvents": b"10000", "version": b"bullmq:5.62.0"}),
        "wait": Entry("list", [b"2", b"3"]),
        "stalled": Entry("set", [b"2"]),
        "delayed": Entry("zset", [(b"4", 1150.0 * 4096)]),
        "completed": Entry("zset", [(b"1", 1200.0)]),
        "marker": Entry("zset", [(b"0", 0.0), (b"1", 1150.0)]),
        "stalled-check": Entry("string", b"1100", 5_000),
        "events": Entry("stream", list(EVENTS)),
        "id": Entry("string", b"4"),
    }
    for name, entry in changed.items():
        key = name.replace("_lock", ":lock").lstrip("_").replace("stalled_check", "stalled-check")
        if entry is None:
            del entries[key]
        else:
            entries[key] = entry
    return entries


def job(**changed: bytes | None) -> Entry:
    fields = {**JOB, **changed}
    return Entry("hash", {name: value for name, value in fields.items() if value is not None})


def test_equal_keyspaces_have_no_differences() -> None:
    assert differences(space(), space()) == []
    assert differences(space(), space(), during=Period(1000, 2000)) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"id": None},
        {"extra": Entry("string", b"")},
        {"id": Entry("string", b"5")},
        {"id": Entry("list", [b"4"])},
        {"id": Entry("string", b"4", 1_000)},
        {"_1_lock": Entry("string", b"token-a")},
        {"_1_lock": Entry("string", b"token-a", 20_000)},
        {"_2_lock": Entry("string", b"token-b", 30_000)},
        {"_3_lock": Entry("string", b"token-a", 30_000)},
        {"wait": Entry("list", [b"3", b"2"])},
        {"stalled": Entry("set", [b"2", b"3"])},
        {"delayed": Entry("zset", [(b"4", 1150.0 * 4096 + 1)])},
        {"delayed": Entry("zset", [(b"5", 1150.0 * 4096)])},
        {"completed": Entry("zset", [(b"1", 1201.0)])},
        {"marker": Entry("zset", [(b"0", 0.0)])},
        {"meta": Entry("hash", {"opts.maxLenEvents": b"9999", "version": b"bullmq:5.62.0"})},
        {"_1": job(data=b'{"to":"ann","n":{}}')},
        {"_1": job(opts=b'{"attempts":3}')},
        {"_1": job(opts=b'{"attempts":3,"kl":5.0}')},
        {"_1": job(failedReason=b'"no"')},
        {"_1": job(returnvalue=b'{"a": 1}')},
        {"_1": job(stacktrace=b'["at work", "again"]')},
        {"_1": job(processedOn=b"1101")},
        {"_1": job(atm=None)},
        {"_1": job(stc=b"0")},
        {"events": Entry("stream", EVENTS[:2])},
        {"events": Entry("stream", [*EVENTS, ("3-0", [("event", b"drained")])])},
        {"events": Entry("stream", [EVENTS[1], EVENTS[0], EVENTS[2]])},
        {"events": Entry("stream", [EVENTS[0], ("1-1", EVENTS[1][1][::-1]), EVENTS[2]])},
        {"events": Entry("stream", [*EVENTS[:2], ("2-0", [*EVENTS[2][1][:2], ("delay", b"1151")])])},
    ],
)
def test_each_difference_is_seen_from_both_sides(changed: dict[str, Any]) -> None:
    assert len(differences(space(), space(**changed))) >= 1
    assert len(differences(space(**changed), space())) >= 1


@pytest.mark.parametrize(
    "changed",
    [
        {"meta": Entry("hash", {"opts.maxLenEvents": b"10000", "version": b"corral"})},
        {"meta": Entry("hash", {"opts.maxLenEvents": b"10000"})},
        {"_1_lock": Entry("string", b"token-a", 29_000)},
        {"_1": job(data=b'{ "n": [], "to": "ann" }')},
        {"_1": job(opts=b'{"kl":5,"attempts":3}')},
        {"events": Entry("stream", [(f"9-{n}", fields) for n, (_, fields) in enumerate(EVENTS)])},
    ],
)
def test_what_may_differ_is_not_told(changed: dict[str, Any]) -> None:
    assert differences(space(), space(**changed)) == []


def test_lock_values_are_compared_by_their_pattern() -> None:
    other = {f"_{n}_lock": Entry("string", value, 30_000) for n, value in ((1, b"x"), (2, b"x"), (3, b"y"))}
    assert differences(space(), space(**other)) == []
    other["_2_lock"] = Entry("string", b"z", 30_000)
    assert differences(space(), space(**other)) != []


def test_known_receipts_must_be_in_their_locks() -> None:
    given = {"1": "token-a", "2": "token-a", "3": "token-b"}
    assert differences(space(), space(), receipts=(given, given)) == []
    assert differences(space(), space(), receipts=(given, {**given, "3": "token-c"})) != []
    assert differences(space(), space(), receipts=({"1": "token-a"}, given)) != []


LATER = {
    "_1": job(processedOn=b"1300", finishedOn=b"1400"),
    "completed": Entry("zset", [(b"1", 1400.0)]),
    "delayed": Entry("zset", [(b"4", 1500.0 * 4096)]),
    "marker": Entry("zset", [(b"0", 0.0), (b"1", 1500.0)]),
    "stalled_check": Entry("string", b"1234", 5_000),
    "events": Entry("stream", [*EVENTS[:2], ("2-0", [*EVENTS[2][1][:2], ("delay", b"1500")])]),
}


def test_times_read_from_two_clocks_are_masked_inside_their_period() -> None:
    assert differences(space(), space(**LATER)) != []
    assert differences(space(), space(**LATER), during=Period(1000, 2000)) == []


def test_a_plan_may_reach_past_the_period_only_as_far_as_said() -> None:
    assert differences(space(), space(**LATER), during=Period(1000, 1400)) != []
    assert differences(space(), space(**LATER), during=Period(1000, 1400, ahead=100)) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"_1": job(processedOn=b"2001", finishedOn=b"2002"), "completed": Entry("zset", [(b"1", 2002.0)])},
        {"_1": job(timestamp=b"999")},
        {"_1": job(processedOn=b"1300", finishedOn=b"1200")},
        {"completed": Entry("zset", [(b"1", 1201.0)])},
        {"marker": Entry("zset", [(b"1", 1150.0)])},
        {"delayed": Entry("zset", [(b"4", 9000.0 * 4096)])},
        {"stalled_check": Entry("string", b"77", 5_000)},
    ],
)
def test_masked_times_keep_their_order_and_bounds(changed: dict[str, Any]) -> None:
    assert differences(space(), space(**changed), during=Period(1000, 2000)) != []


def test_a_look_sees_every_type_and_nothing_of_the_neighbours(server: Server) -> None:
    with server.connect() as client:
        client.set("bull:mail:id", "3", px=60_000)
        client.rpush("bull:mail:wait", "2", "1")
        client.sadd("bull:mail:stalled", "2", "1")
        client.zadd("bull:mail:delayed", {"5": 1.5, "4": 0.5})
        client.hset("bull:mail:1", mapping={"data": b"\xff\x00"})
        client.xadd("bull:mail:events", {"event": "added", "jobId": "1"})
        client.set("bull:mailbox:id", "9")
        client.set("other:mail:id", "7")
        mail, other = look(client, "bull:mail:", "other:mail:")
    assert sorted(mail) == ["1", "delayed", "events", "id", "stalled", "wait"]
    assert mail["id"].ttl is not None
    assert 0 < mail["id"].ttl <= 60_000
    assert mail["wait"] == Entry("list", [b"2", b"1"])
    assert mail["stalled"] == Entry("set", [b"1", b"2"])
    assert mail["delayed"] == Entry("zset", [(b"4", 0.5), (b"5", 1.5)])
    assert mail["1"] == Entry("hash", {"data": b"\xff\x00"})
    assert mail["events"].value[0][1] == [("event", b"added"), ("jobId", b"1")]
    assert other == {"id": Entry("string", b"7")}
