"""Parts of the OpenAPI document that FastAPI cannot read from the code."""

from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel

from corral.core.schema import event_schema
from corral.gateway.documents import TASK_ID
from corral.gateway.models import CURSOR, JOB_ID, NEW_YEAR, ProblemDocument
from corral.gateway.problems import KINDS, MEDIA_TYPE

Responses = dict[int | str, dict[str, Any]]

_PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}

_EXAMPLES: dict[str, Any] = {
    "protocol": "bullmq",
    "queue": "mail",
    "verb": "retry",
    "schedule_id": "nightly",
    "state": "waiting",
    "status": "done",
    "task": "embed",
    "limit": 100,
    "cursor": CURSOR,
    "query": "state = dead",
    "task_id": TASK_ID,
    "past": 10,
    "depth": 10,
    "children": 100,
    "since": NEW_YEAR,
    "until": NEW_YEAR + 86_400_000,
    "name": "send",
    "worker": "mailer-1",
    "last_id": f"{NEW_YEAR}-0",
}
"""Examples of parameters, by name."""


def operation_id(route: APIRoute) -> str:
    """Return the name of a route's function in camel case, as generated clients use it."""
    first, *others = route.name.split("_")
    return first + "".join(map(str.capitalize, others))


def problem_responses(*statuses: int, more: Responses | None = None) -> Responses:
    """Return the descriptions of a route's problems by status, and of its other responses."""
    responses: Responses = dict(more or {})
    for status in statuses:
        names = ", ".join(f"`{kind.name}`" for kind in KINDS if kind.status == status)
        responses[status] = {"description": f"Problem: {names}", "model": ProblemDocument}
    return responses


def text_response(description: str, media_type: str, example: str) -> Responses:
    """Return the description of a response that is text."""
    content = {media_type: {"schema": {"type": "string"}, "example": example}}
    return {200: {"description": description, "content": content}}


def with_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the arguments of a route that reads a JSON body of that model."""
    body = {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}
    responses = problem_responses(400, 408, 413, 415, 422)
    return {"responses": responses, "openapi_extra": {"requestBody": body}}


CREATE_JOB_HEADERS: list[dict[str, Any]] = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "The same request under the same key creates one job.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        "example": "order-7",
    },
    {
        "name": "Prefer",
        "in": "header",
        "required": False,
        "description": "`wait=N`: respond when the job has ended, or after N seconds (RFC 7240).",
        "schema": {"type": "string"},
        "example": "wait=5",
    },
]


def _example(name: str, path: str) -> Any:
    is_queue = path.startswith("/v1/queues")
    if path.startswith("/v1/history"):
        own = {"queue": "bullmq/mail", "cursor": f"{NEW_YEAR}000-1", "job_id": "17"}
        is_key = name == "queue" and "{queue}" not in path
        return own[name] if name in ("cursor", "job_id") or is_key else _EXAMPLES[name]
    if name == "job_id":
        return "17" if is_queue else JOB_ID
    if name == "last-event-id":
        return f"{NEW_YEAR}-0@bullmq/mail" if path == "/v1/events" else f"{NEW_YEAR}-0"
    return "" if name == "cursor" and not is_queue else _EXAMPLES[name]


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with problems as errors, examples of parameters, and the authentication."""
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    events = event_schema()
    document["components"]["schemas"]["EventView"] |= {
        part: events[part] for part in ("properties", "required")
    }
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "Required where the gateway has keys."}
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
