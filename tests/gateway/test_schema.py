"""Schemathesis over the OpenAPI document: no 5xx, and no answer that the document does not describe."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from corral.gateway import Settings, create_app, models
from corral.gateway.models import Cleaned, Drained, Ids, NewJob, Replayed
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

document = create_app(Settings(redis_url="redis://127.0.0.1:1")).openapi()
# a tail goes on for as long as its job does: it has tests of its own
described = schemathesis.openapi.from_dict(document).exclude(operation_id=["tailJob", "tailEverything"])


@pytest.fixture(scope="module")
def tried(valkey: Server) -> Iterator[Gateway]:
    """A gateway that keeps nobody waiting: an example prefers to wait for five seconds."""
    valkey.flush()
    gateway = Gateway(valkey.url, max_wait_s=0, answer_s=10)
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
def test_every_answer_is_as_it_is_described(case: schemathesis.Case, tried: Gateway) -> None:
    answer = case.call(base_url=tried.url, timeout=20)
    case.validate_response(answer, checks=list(CHECKS))


def test_the_document_leaves_out_no_route_but_the_tails() -> None:
    tried = {(operation.ok().path, operation.ok().method) for operation in described.get_all_operations()}
    every = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert {path for path, _ in every - tried} == {"/v1/jobs/{job_id}/events", "/v1/events"}


def test_every_answer_and_every_parameter_is_described_with_an_example() -> None:
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", ()):
                assert "example" in parameter, (method, path, parameter["name"])
            for status, response in operation["responses"].items():
                for content in response.get("content", {}).values():
                    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
                    assert "example" in content or schemas[name]["examples"], (method, path, status)


def test_every_example_fits_its_model() -> None:
    described_by = {name: model for name, model in vars(models).items() if hasattr(model, "model_validate")}
    for name, schema in document["components"]["schemas"].items():
        for example in schema.get("examples", ()):
            shown = described_by[name].model_validate(example).model_dump(mode="json", exclude_unset=True)
            assert shown == example, name


def test_every_body_is_described_with_an_example_that_fits() -> None:
    bodies = {"createJob": NewJob, "drainQueue": Drained, "cleanQueue": Cleaned, "replayQueue": Replayed}
    found = {"changeJobs": Ids, **bodies}
    for methods in document["paths"].values():
        for operation in methods.values():
            if "requestBody" in operation:
                model = found.pop(operation["operationId"])
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                assert [model.model_validate(example) for example in schema["examples"]]
    assert found == {}
