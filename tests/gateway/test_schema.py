"""Schemathesis over the OpenAPI document: no 5xx, and no response that it does not describe."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from pydantic import BaseModel
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from corral.gateway import GatewaySettings, create_app, documents, history_documents, models
from corral.gateway.models import CleanRequest, DrainRequest, JobIds, JobRequest, ReplayRequest
from tests.support.gateway import Gateway
from tests.support.servers import Server

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
EXAMPLES = 25
SEQUENCES = 300

document = create_app(GatewaySettings(redis_url="redis://127.0.0.1:1")).openapi()
# tails do not end by themselves: they have their own tests
described = schemathesis.openapi.from_dict(document).exclude(
    operation_id=["tailJob", "tailQueues", "tailActivity"]
)


@pytest.fixture(scope="module")
def gateway_without_wait(valkey: Server) -> Iterator[Gateway]:
    """A gateway without `Prefer: wait`, of which the examples have one."""
    valkey.flush()
    gateway = Gateway(valkey.url, max_wait_s=0, redis_timeout_s=10)
    yield gateway
    gateway.stop()


@described.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_response_is_as_described(case: schemathesis.Case, gateway_without_wait: Gateway) -> None:
    response = case.call(base_url=gateway_without_wait.url, timeout=20)
    case.validate_response(response, checks=list(CHECKS))


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_every_response_in_a_sequence_of_requests_is_as_described(gateway_without_wait: Gateway) -> None:
    """Requests follow each other with what the responses before them name: jobs, schedules, tasks."""

    class Requests(described.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            return {"base_url": gateway_without_wait.url, "timeout": 20}

        def validate_response(self, response: Any, case: schemathesis.Case, **_: Any) -> None:
            case.validate_response(response, checks=list(CHECKS))

    Requests.run(
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=10,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
    )


def test_every_route_but_the_tails_is_tried() -> None:
    tried = {(operation.ok().path, operation.ok().method) for operation in described.get_all_operations()}
    every = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert {path for path, _ in every - tried} == {"/v1/jobs/{job_id}/events", "/v1/events", "/v1/activity"}


def test_every_response_and_every_parameter_has_an_example() -> None:
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", ()):
                assert "example" in parameter, (method, path, parameter["name"])
            for status, response in operation["responses"].items():
                for content in response.get("content", {}).values():
                    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
                    assert "example" in content or schemas[name]["examples"], (method, path, status)


def test_every_example_is_valid() -> None:
    described_by = {
        name: model
        for name, model in {**vars(models), **vars(documents), **vars(history_documents)}.items()
        if isinstance(model, type) and issubclass(model, BaseModel)
    }
    for name, schema in document["components"]["schemas"].items():
        for example in schema.get("examples", ()):
            parsed = described_by[name].model_validate(example)
            assert parsed.model_dump(mode="json", exclude_unset=True, by_alias=True) == example, name


def test_every_body_has_a_valid_example() -> None:
    models_by_operation = {
        "createJob": JobRequest,
        "drainQueue": DrainRequest,
        "cleanQueue": CleanRequest,
        "replayQueue": ReplayRequest,
        "changeJobs": JobIds,
        "signIn": documents.SessionRequest,
        "addJob": documents.NewJobRequest,
        "updateJob": documents.JobUpdate,
        "setLimits": documents.LimitsView,
        "obliterateQueue": documents.ObliterateRequest,
        "startTask": documents.TaskRequest,
        "putSchedule": documents.ScheduleRequest,
    }
    for methods in document["paths"].values():
        for operation in methods.values():
            if "requestBody" in operation:
                model = models_by_operation.pop(operation["operationId"])
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                assert [model.model_validate(example) for example in schema["examples"]]
    assert models_by_operation == {}
