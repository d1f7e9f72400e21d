"""The JSON Schemas that are shipped: what they accept, what they refuse."""

from copy import deepcopy
from importlib.resources import files
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from corral.core.options import Capability, build
from corral.core.schema import event_schema, payload_schema
from corral.errors import InvalidOptions
from tests.support.schema_files import PAGE, SCHEMAS, page

PAYLOAD = Draft202012Validator(payload_schema())
EVENT = Draft202012Validator(event_schema())

SEND_EMAIL = {
    "id": "550e8400-e29b-41d4-a716-446655440000",
    "name": "send-email",
    "data": {"to": "user@example.com", "subject": "Welcome!", "body": "Thank you for signing up."},
    "opts": {"priority": 5, "attempts": 3, "backoff": {"type": "exponential", "delay": 1000}},
}
PROCESS_PAYMENT = {
    "id": "payment-789",
    "name": "process-payment",
    "data": {"orderId": "order-123", "amount": 99.99, "currency": "USD", "paymentMethod": "credit_card"},
    "opts": {"priority": 10, "attempts": 5, "backoff": {"type": "exponential", "delay": 2000}},
}
VIDEO = {
    "id": "1",
    "name": "video-generation",
    "data": {
        "videoId": "550e8400-e29b-41d4-a716-446655440000",
        "userId": "user-123",
        "script": {"title": "My Video", "scenes": [{"sceneNumber": 1, "imagePrompt": "Sunset"}]},
        "userImageUrls": ["https://example.com/img1.jpg"],
    },
    "opts": {
        "priority": 1,
        "attempts": 3,
        "backoff": {"type": "exponential", "delay": 1000},
        "removeOnComplete": False,
        "removeOnFail": False,
    },
    "progress": 0,
    "delay": 0,
    "timestamp": 1698765432000,
    "attemptsMade": 0,
}
FAILED = {
    **SEND_EMAIL,
    "timestamp": 1698765432000,
    "attemptsMade": 3,
    "processedOn": 1698765433000,
    "finishedOn": 1698765434000,
    "workerId": "worker-1",
    "failedReason": "SMTP connection failed",
    "stacktrace": ["at sendEmail", "at worker.go:123"],
}


@pytest.mark.parametrize("schema", [payload_schema(), event_schema()])
def test_the_schemas_are_schemas(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_files_of_the_package_and_the_page_have_what_the_code_declares(name: str) -> None:
    way_out = "write them anew: python -m tests.support.schema_files"
    assert orjson.loads(files("corral.core").joinpath("schemas", name).read_bytes()) == SCHEMAS[name](), (
        way_out
    )
    assert page(PAGE.read_text()) == PAGE.read_text(), way_out


def test_the_limits_of_the_options_are_those_of_their_checks() -> None:
    opts = payload_schema()["$defs"]["options"]["properties"]
    for name in ("priority", "delay", "attempts"):
        build("bullmq", frozenset(Capability), **{name: opts[name]["maximum"]})
        for beyond in (opts[name]["minimum"] - 1, opts[name]["maximum"] + 1):
            assert not PAYLOAD.is_valid({**SEND_EMAIL, "opts": {name: beyond}})
            with pytest.raises(InvalidOptions):
                build("bullmq", frozenset(Capability), **{name: beyond})


def test_a_caller_may_change_its_copy() -> None:
    payload_schema()["required"].clear()
    assert payload_schema()["required"] == ["id", "name", "data", "opts"]


# -- jobs


@pytest.mark.parametrize("job", [SEND_EMAIL, PROCESS_PAYMENT, VIDEO, FAILED])
def test_the_contracts_example_jobs_are_valid(job: dict[str, Any]) -> None:
    assert list(PAYLOAD.iter_errors(job)) == []


@pytest.mark.parametrize(
    "opts",
    [
        {},
        {"backoff": 500},
        {"backoff": {"type": "fixed", "delay": 1, "jitter": 0.5}},
        {"removeOnComplete": True, "removeOnFail": 0},
        {"removeOnComplete": 100, "removeOnFail": {"age": 3600, "count": 10}},
        {"lifo": True, "keepLogs": 5, "delay": 60_000, "priority": 2097152},
        {"something": "of a protocol's own"},
    ],
)
def test_options_in_every_spelling_are_valid(opts: dict[str, Any]) -> None:
    assert list(PAYLOAD.iter_errors({**SEND_EMAIL, "opts": opts})) == []


@pytest.mark.parametrize("data", [{}, [], [1], "text", 5, True])
def test_data_may_be_any_json_and_empty(data: Any) -> None:
    assert list(PAYLOAD.iter_errors({**SEND_EMAIL, "data": data})) == []


@pytest.mark.parametrize("missing", ["id", "name", "data", "opts"])
def test_a_job_needs_its_required_fields(missing: str) -> None:
    job = deepcopy(SEND_EMAIL)
    del job[missing]
    assert not PAYLOAD.is_valid(job)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"id": 5},
        {"name": ""},
        {"data": None},
        {"opts": None},
        {"progress": 101},
        {"progress": -1},
        {"delay": -1},
        {"timestamp": "1698765432000"},
        {"attemptsMade": -1},
        {"stacktrace": "at sendEmail"},
        {"returnvalue": {"messageId": "abc123"}, "failedReason": "SMTP connection failed"},
    ],
)
def test_a_job_that_breaks_a_rule_is_invalid(wrong: dict[str, Any]) -> None:
    assert not PAYLOAD.is_valid({**SEND_EMAIL, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": -1},
        {"priority": 2097153},
        {"priority": 1.5},
        {"delay": -1},
        {"attempts": 0},
        {"attempts": -1},
        {"backoff": {"type": "linear", "delay": 1000}},
        {"backoff": {"delay": 1000}},
        {"backoff": {"type": "fixed", "delay": 0}},
        {"backoff": {"type": "fixed", "delay": -1}},
        {"backoff": {"type": "fixed", "jitter": 1.5}},
        {"backoff": 0},
        {"backoff": "exponential"},
        {"removeOnComplete": -1},
        {"removeOnFail": "yes"},
        {"removeOnFail": {}},
        {"removeOnFail": {"age": 0}},
        {"lifo": 1},
        {"keepLogs": 0},
    ],
)
def test_options_that_break_a_rule_are_invalid(wrong: dict[str, Any]) -> None:
    assert not PAYLOAD.is_valid({**SEND_EMAIL, "opts": wrong})


# -- events


def event(kind: str, **fields: Any) -> dict[str, Any]:
    known = {"id": "1698765434000-0", "protocol": "bullmq", "queue": "mail", "at": 1698765434000}
    return {**known, "kind": kind, "job_id": "payment-789", **fields}


EVENTS = [
    event("added", name="charge"),
    event("waiting", previous="active"),
    event("active", worker="worker-1", attempt=1, data=None),
    event("progress", data={"data": {"progress": 25, "message": "Generating scene 1"}}),
    event("completed", data={"returnvalue": None}),
    event("dead", data={"failedReason": "no"}),
    event("stalled"),
    event("retry", data={"delay": 2000}),
    event("opened", data={"page": 3}),
    event("drained", job_id=None),
    {"id": "1-0", "protocol": "bullmq", "queue": "mail", "at": 1, "kind": "paused"},
]


@pytest.mark.parametrize("one", EVENTS, ids=lambda one: one["kind"])
def test_events_are_valid(one: dict[str, Any]) -> None:
    assert list(EVENT.iter_errors(one)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        event("waiting", job_id=None),
        event("waiting", job_id=""),
        event("", job_id="1"),
        event("waiting", at=-1),
        event("waiting", at="soon"),
        event("waiting", id="first"),
        event("active", attempt=-1),
        event("active", worker=5),
        event("progress"),
        event("progress", data=None),
        event("dead"),
        event("dead", data={}),
        event("retry"),
        event("retry", data={"delay": -1}),
        {"kind": "waiting", "job_id": "1"},
    ],
)
def test_an_event_that_breaks_a_rule_is_invalid(wrong: dict[str, Any]) -> None:
    assert not EVENT.is_valid(wrong)
