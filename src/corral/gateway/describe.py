"""Parts of the OpenAPI document that FastAPI cannot read off the code."""

from typing import Any

from pydantic import BaseModel

from corral.gateway.models import JOB_ID, NEW_YEAR, NewJob, ProblemView
from corral.gateway.problems import KINDS, MEDIA_TYPE

Responses = dict[int | str, dict[str, Any]]


_PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemView"}}}


def problems(*statuses: int, more: Responses | None = None) -> Responses:
    """The problems a route may answer with, by their status; and what else it answers."""
    described: Responses = dict(more or {})
    for status in statuses:
        names = [f"`{kind.name}`" for kind in KINDS if kind.status == status]
        described[status] = {
            "description": f"Problem: {', '.join(names)}",
            "model": ProblemView,
        }
    return described


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """A JSON body of that model."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


NEW_JOB: dict[str, Any] = {
    **body_of(NewJob),
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same request under the same key is the same job.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
            "example": "order-7",
        },
        {
            "name": "Prefer",
            "in": "header",
            "required": False,
            "description": "`wait=N`: answer when the job is over, or after N seconds (RFC 7240).",
            "schema": {"type": "string"},
            "example": "wait=5",
        },
    ],
}


_GIVEN: dict[str, Any] = {
    "protocol": "bullmq",
    "queue": "mail",
    "verb": "retry",
    "schedule_id": "nightly",
    "state": "waiting",
    "status": "done",
    "task": "embed",
    "limit": 100,
    "cursor": "after-100",
    "last_id": f"{NEW_YEAR}-0",
}
"""What is shown for a parameter of that name."""


def _example(name: str, path: str) -> Any:
    of_protocols = path.startswith("/v1/queues")
    if name == "job_id":
        return "17" if of_protocols else JOB_ID
    if name == "last-event-id":
        return f"{NEW_YEAR}-0@bullmq/mail" if path == "/v1/events" else f"{NEW_YEAR}-0"
    return "" if name == "cursor" and not of_protocols else _GIVEN[name]


def finish(document: dict[str, Any]) -> dict[str, Any]:
    """The document with every error as a problem, and the keys it takes to be let in."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "Needed where the gateway has keys."}
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = [{}, {"key": []}]
            for parameter in operation.get("parameters", ()):
                if "example" not in parameter:
                    parameter["example"] = _example(parameter["name"], path)
            responses = operation["responses"]
            for status, response in responses.items():
                if status >= "400":
                    response["content"] = _PROBLEM
            responses["default"] = {"description": "Any other problem", "content": _PROBLEM}
    return document
