"""The streams protocol's names and words, without a server."""

import pytest

from corral.core.event import EventKind
from corral.core.ports import Profile
from corral.errors import InvalidName
from corral.protocols.streams.codec import STATES, TASKS, fingerprint
from corral.protocols.streams.events import KINDS_BY_TYPE, decode_events
from corral.protocols.streams.keys import StreamsKeys
from corral.protocols.streams.options import CAPABILITIES, StreamsSettings


def test_without_a_namespace_the_keys_are_the_contracts() -> None:
    keys = StreamsKeys("", "jobs")
    assert keys.stream == "jobs:stream"
    assert keys.job("1") == "job:1"
    assert keys.job_events("1") == "job:1:events"
    assert keys.idempotency("k") == "idempotency:k"


def test_the_added_keys_collide_with_none_of_the_contracts() -> None:
    keys = StreamsKeys("", "jobs")
    added = {keys.events, keys.workers, keys.trip("b"), keys.fingerprint("k")}
    contract = {keys.stream, keys.job("k"), keys.job_events("k"), keys.idempotency("k")}
    assert not added & contract
    # no idempotency key and no UUID can name an added key
    assert not keys.fingerprint("x").startswith(keys.idempotency(""))
    assert not any(name.startswith(keys.job("")) for name in added)


def test_a_hash_tag_puts_every_key_into_one_slot() -> None:
    keys = StreamsKeys("{shop}", "jobs")
    names = [
        keys.stream,
        keys.events,
        keys.workers,
        keys.trip("b"),
        keys.idempotency("{x}"),
        keys.fingerprint("k"),
    ]
    assert all(name.startswith("{shop}:") for name in names + keys.of_jobs(["1"]))


def test_another_queue_is_not_there() -> None:
    with pytest.raises(InvalidName, match="has one queue, 'jobs', and no 'mail'"):
        StreamsKeys("", "mail")


@pytest.mark.parametrize("name", ["my worker", "wörker", "a\nb", "a\x7f"])
def test_a_connection_name_has_only_visible_characters(name) -> None:
    shown = StreamsKeys("", "jobs").connection_name(name)
    assert shown.startswith("corral:streams:")
    assert all("!" <= char <= "~" for char in shown)


def test_every_status_of_the_contract_has_a_state() -> None:
    assert list(STATES) == ["queued", "running", "done", "error", "canceled"]
    assert len(set(STATES.values())) == 5
    assert set(STATES) <= {kind.decode() for kind in KINDS_BY_TYPE}


def test_the_contract_has_six_tasks() -> None:
    assert "|".join(TASKS) == "chat|plan|code|tool|rag|embed"


def test_the_protocol_claims_only_what_the_contract_can_keep() -> None:
    assert {capability.value for capability in CAPABILITIES} == {
        "custom ids",
        "time to live",
        "idempotency keys",
        "unique jobs",
    }


def test_a_fingerprint_knows_the_request_not_its_spelling() -> None:
    one = fingerprint("chat", b'{"a":1,"b":{"c":2,"d":3}}', 60)
    assert one == fingerprint("chat", b'{"b":{"d":3,"c":2},"a":1}', 60)
    others = {
        fingerprint("code", b'{"a":1,"b":{"c":2,"d":3}}', 60),
        fingerprint("chat", b'{"a":1,"b":{"c":2,"d":4}}', 60),
        fingerprint("chat", b'{"a":1,"b":{"c":2,"d":3}}', 61),
    }
    assert len(others) == 3
    assert one not in others


@pytest.mark.parametrize(
    ("profile", "most"),
    [
        (Profile(name="w"), 3),
        (Profile(name="w", max_stalls=0), 3),
        (Profile(name="w", max_stalls=10), 11),
        (Profile(name="w", max_stalls=10, extra={"max_deliveries": 2}), 2),
    ],
)
def test_how_often_a_job_may_be_delivered(profile, most) -> None:
    assert StreamsSettings.of(profile).max_deliveries == most


def test_a_setting_of_another_protocol_is_left_alone() -> None:
    assert StreamsSettings.of(Profile(name="w", extra={"region": "eu"})) == StreamsSettings()


def test_an_event_of_nonsense_can_still_be_read() -> None:
    [event] = decode_events([(b"1700000000000-3", [b"type", b"\xff", b"ts", b"soon", b"own", b"x"])])
    assert (event.id, event.at, event.job_id) == ("1700000000000-3", 1_700_000_000_000, None)
    assert event.data == {"step": "", "data": {}, "_broken": {"ts": "soon"}}


def test_an_event_of_a_kind_we_do_not_know_passes_through() -> None:
    entry = (b"1-0", [b"type", b"thinking", b"ts", b"5", b"step", b"s", b"data", b"{"])
    [event] = decode_events([entry], "7")
    assert (event.kind, event.at, event.job_id) == ("thinking", 5, "7")
    assert event.data == {"step": "s", "data": {"_raw": "{"}}


def test_a_terminal_event_is_one_of_three() -> None:
    words = (b"done", b"error", b"canceled")
    kinds = {event.kind for event in decode_events([(b"1-0", [b"type", word]) for word in words])}
    assert kinds == {EventKind.COMPLETED, EventKind.DEAD, EventKind.CANCELLED}
