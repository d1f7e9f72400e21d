"""The JSON Schemas that are shipped: what they accept, what they refuse."""

from copy import deepcopy
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from corral.core.schema import event_schema, payload_schema

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


def test_the_schemas_are_files_of_the_package_under_the_names_the_contract_uses() -> None:
    names = {entry.name for entry in files("corral.core").joinpath("schemas").iterdir()}
    assert {"job-payload-schema.json", "event-schema.json"} <= names


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


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"event": name, "jobId": "payment-789", "timestamp": 1698765434000, **fields}


EVENTS = [
    event("waiting"),
    event("active", workerId="worker-1"),
    event("active", attemptsMade=1, data={"workerId": "worker-1", "timestamp": 1698765433000}),
    event("progress", progress=50),
    event("progress", data={"progress": 25, "message": "Generating scene 1"}),
    event("progress", data={"progress": {"scene": 1, "of": 400}}),
    event("completed", attemptsMade=1, returnvalue={"messageId": "abc123"}),
    event("completed", data={"returnvalue": None}),
    event("failed", failedReason="SMTP connection failed"),
    event("failed", data={"failedReason": "no", "stacktrace": ["at sendEmail", "at worker.go:123"]}),
    event("stalled"),
    event("retry", delay=2000),
    event("retry", data={"delay": 0}),
]


@pytest.mark.parametrize("one", EVENTS, ids=lambda one: one["event"])
def test_the_contracts_events_are_valid(one: dict[str, Any]) -> None:
    assert list(EVENT.iter_errors(one)) == []


@pytest.mark.parametrize("name", ["drained", "paused", "resumed"])
def test_what_happens_to_a_queue_names_no_job(name: str) -> None:
    assert list(EVENT.iter_errors({"event": name, "timestamp": 1})) == []


@pytest.mark.parametrize("name", ["added", "delayed", "duplicated", "cancelled"])
def test_further_words_are_known(name: str) -> None:
    assert list(EVENT.iter_errors(event(name))) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"event": "waiting", "timestamp": 1},
        {"event": "waiting", "jobId": "1"},
        {"jobId": "1", "timestamp": 1},
        {"event": "failed", "jobId": "1", "failedReason": "without a time"},
        event("finished"),
        event("waiting", jobId=""),
        event("waiting", timestamp=-1),
        event("waiting", timestamp="soon"),
        event("active", attemptsMade=-1),
        event("active", workerId=5),
        event("progress"),
        event("progress", progress=101),
        event("progress", data={"progress": -1}),
        event("progress", data={"message": "no number"}),
        event("failed"),
        event("failed", failedReason=5),
        event("failed", data={"failedReason": "x", "stacktrace": "at sendEmail"}),
        event("retry"),
        event("retry", delay=-1),
        event("completed", returnvalue=1, failedReason="both"),
    ],
)
def test_an_event_that_breaks_a_rule_is_invalid(wrong: dict[str, Any]) -> None:
    assert not EVENT.is_valid(wrong)
