"""Jobs, endings and events to and from the BridgeMQ words, without a server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.job import Backoff, Claim, Job, JobOptions, JobState
from corral.core.outcome import Cancelled, Completed, Dead, Postponed, Released, Retry, Settlement
from corral.errors import InvalidName, InvalidOptions
from corral.protocols.bridgemq.codec import (
    ClaimReceipt,
    JobRecord,
    decode_job,
    encode_job,
    encode_settlement,
    encode_step,
)
from corral.protocols.bridgemq.events import decode_event
from corral.protocols.bridgemq.keys import BridgemqKeys, check_server_id, instance_id
from corral.protocols.bridgemq.schedules.firing import describe, encode_firing, read_schedule

NOW = 1_732_376_323_000


def job(data: Any = None, **options: Any) -> Job:
    return Job(name="work", data=data, queue="mail", id="j1", options=JobOptions(**options), created_at=NOW)


def claimed(**fields: Any) -> Claim:
    given = {"id": "j1", "name": "work", "data": {}, "queue": "mail", "started_at": NOW - 50, **fields}
    return Claim(Job(**given), ClaimReceipt("j1", "w1", 7))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**63 - 1) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(json_values, st.integers(0, 20), st.integers(1, 9), st.sampled_from([None, Backoff("fixed", 5, 0.5)]))
def test_a_job_comes_back_as_it_went(data: Any, priority: int, attempts: int, backoff: Backoff | None):
    row = encode_job(job(data, priority=priority, attempts=attempts, backoff=backoff), NOW)
    back = decode_job("j1", JobRecord(raw=row.raw, status="waiting"))
    assert (back.name, back.queue, back.data, back.created_at) == ("work", "mail", data, NOW)
    assert (back.options.priority, back.options.attempts, back.options.backoff) == (
        priority,
        attempts,
        backoff,
    )
    assert back.state is JobState.WAITING
    assert row.is_front == (priority >= 7)


def test_what_the_protocol_alone_knows_comes_back_in_our_words():
    extra = {
        "target": {"capabilities": ["gpu"], "mode": "all"},
        "rate": {"concurrent": 3, "per_minute": 100},
        "keep_data": True,
        "cron": "*/5 * * * *",
        "timezone": "Europe/Berlin",
        "catch_up": "all",
    }
    row = encode_job(job(extra=extra), NOW)
    assert (row.status, row.score) == ("cron", 1_732_376_400_000)
    assert decode_job("j1", JobRecord(raw=row.raw)).options.extra == extra


@pytest.mark.parametrize("raw", [b"{", b"[1]", b"7", b'"x"', b"\xff"])
def test_data_that_is_no_object_dooms_the_job_and_is_kept_to_be_seen(raw: bytes):
    read = decode_job("j1", JobRecord(raw=raw, status="active"))
    assert read.doomed == "its job data is no JSON object"
    assert read.data is not None


@pytest.mark.parametrize(
    ("wire", "attempts", "expected"),
    [
        ({"type": "fixed", "delay": 50}, 4, Backoff("fixed", 50)),
        ({"type": "exponential", "delay": 50}, 4, Backoff("exponential", 50)),
        ({"type": "exponential", "delay": 50, "maxDelay": 300}, 4, Backoff("fixed", 300)),
        ({"type": "linear", "delay": 50}, 2, Backoff("fixed", 150)),
        ({"type": "linear", "delay": 50, "jitter": True}, 0, Backoff("fixed", 50, 1.0)),
        ({"delay": 50, "jitter": 7}, 0, Backoff("fixed", 50)),
        ("exponential", 0, None),
        (None, 0, None),
    ],
)
def test_a_strangers_backoff_is_worked_out(wire: Any, attempts: int, expected: Backoff | None):
    raw = json.dumps({"type": "work", "attempt": attempts, "backoff": wire}).encode()
    assert decode_job("j1", JobRecord(raw=raw)).options.backoff == expected


def test_odd_numbers_and_words_read_as_if_they_were_missing():
    wire = {"type": 7, "queue": None, "priority": "high", "attempt": [], "maxAttempts": "x", "createdAt": {}}
    read = decode_job("j1", JobRecord(raw=json.dumps(wire).encode(), attempts=b"x"))
    assert (read.name, read.queue, read.attempts_made, read.created_at) == ("", "default", 0, 0)
    assert (read.options.priority, read.options.attempts) == (0, 3)


@pytest.mark.parametrize(
    ("outcome", "verb"),
    [
        (Completed(b"1"), "completed"), (Retry(5, "x"), "retry"), (Dead("x"), "dead"), (Cancelled(), "dead"),
        (Released(), "released"), (Postponed(9), "postponed"),
    ],
)  # fmt: skip
def test_each_outcome_has_its_verb(outcome: Any, verb: str):
    ending = encode_settlement(Settlement(claimed(), outcome, NOW))
    assert ending is not None
    assert (ending.id, ending.fence, ending.verb, ending.at, ending.attempt) == ("j1", 7, verb, NOW, 1)


def test_a_result_carries_the_handlers_bytes():
    ending = encode_settlement(Settlement(claimed(), Completed(b'{"n":130775545883395173,"f":1.50}'), NOW))
    assert ending is not None
    assert ending.value == (
        b'{"success":true,"data":{"n":130775545883395173,"f":1.50},'
        b'"completedAt":1732376323000,"processingTime":50}'
    )


@pytest.mark.parametrize(
    ("trace", "name"),
    [
        ("Traceback …\nValueError: no", "ValueError"),
        ("Traceback …\nshop.errors.CardRefused: no", "CardRefused"),
        ("Traceback …\nKeyboardInterrupt\n", "KeyboardInterrupt"),
        ("", "Error"),
        ("something else entirely", "Error"),
    ],
)
def test_an_error_is_named_by_its_trace(trace: str, name: str):
    ending = encode_settlement(Settlement(claimed(), Dead("no", trace), NOW))
    assert ending is not None
    assert json.loads(ending.value)["error"]["name"] == name


def test_half_a_surrogate_pair_in_a_reason_does_not_stop_the_settlement():
    ending = encode_settlement(Settlement(claimed(), Dead("cut \ud83d", "trace \udc0e"), NOW))
    assert ending is not None
    assert json.loads(ending.value)["error"]["message"] == "cut ?"


def test_every_trace_so_far_is_kept():
    ending = encode_settlement(Settlement(claimed(trace=("one", "two")), Retry(0, "x", "three"), NOW))
    assert ending is not None
    assert json.loads(ending.traces) == ["one", "two", "three"]


def test_an_event_of_anyone_is_read():
    event = decode_event(b"5-0", [b"event", b"\xff", b"queue", b"", b"data", b"{no json", b"at", b"x"])
    assert (event.at, event.queue, event.data) == (5, "default", {"_raw": "{no json", "_broken": {"at": "x"}})


@pytest.mark.parametrize("step", ["", "x" * 256, None, "completed", "dead", "progress"])
def test_a_step_that_would_mislead_is_refused(step: Any):
    with pytest.raises(InvalidOptions):
        encode_step(step)


# -- schedules --------------------------------------------------------------------------------------------


def test_a_firing_is_the_schedule_byte_for_byte_but_for_what_is_its_own():
    raw = b'{"id":"s","type":"work","data":{"n":130775545883395173,"f":1.50,"e":[]},"x":{"y":1.0}}'
    job_id, made = encode_firing(raw, "s", NOW, NOW + 5)
    assert job_id == instance_id("s", NOW) == f"s@{NOW}"
    assert b'"data":{"n":130775545883395173,"f":1.50,"e":[]}' in made
    assert b'"x":{"y":1.0}' in made
    read = json.loads(made)
    assert (read["id"], read["attempt"], read["createdAt"]) == (job_id, 0, NOW + 5)
    assert read["schedule"] == {"firedBy": "s", "fireTime": NOW}


@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b"{}", b'{"schedule":7}', b'{"schedule":{"cron":"x"}}', b'{"schedule":{}}']
)
def test_a_schedule_that_cannot_be_read_says_so(raw: bytes):
    with pytest.raises(InvalidOptions):
        read_schedule(raw)


def test_a_strangers_schedule_is_read_with_what_it_leaves_out():
    cron, catch_up = read_schedule(b'{"schedule":{"cron":"0 * * * *","catchUp":"never"}}')
    assert (cron.text, cron.zone, catch_up) == ("0 * * * *", "UTC", "once")
    assert describe(b'{"type":5,"priority":"x"}') == ("", "default", 0)


# -- names ------------------------------------------------------------------------------------------------


def test_every_key_begins_with_the_namespace_and_no_two_are_the_same():
    keys = BridgemqKeys("{shop}", "mail")
    of_a_job = [
        name("j1") for name in (keys.data, keys.status, keys.result, keys.lock, keys.progress, keys.attempts,
                                keys.fence, keys.failure, keys.summary, keys.log)
    ]  # fmt: skip
    others = [keys.worker("w"), keys.heartbeat("w"), keys.trip("b"), keys.concurrent("t"), keys.minute("t")]
    everything = [*keys.fixed, *of_a_job, *others, *keys.scheduler]
    assert len(set(everything)) == len(everything)
    assert all(name.startswith("{shop}:") for name in everything)


@pytest.mark.parametrize("server_id", ["active", "heartbeat", "a:b", "", "x" * 256, "a\tb", 7])
def test_a_server_id_that_does_not_fit_is_refused(server_id: Any):
    with pytest.raises(InvalidName, match="server id"):
        check_server_id(server_id)
