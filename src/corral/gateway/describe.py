"""Parts of the OpenAPI document that FastAPI cannot read off the code."""

from typing import Any

from pydantic import BaseModel

from corral.gateway.models import NewJob, ProblemView
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


def finish(document: dict[str, Any]) -> dict[str, Any]:
    """The document with every error as a problem, and the keys it takes to be let in."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "Needed where the gateway has keys."}
    }
    for path in document["paths"].values():
        for operation in path.values():
            operation["security"] = [{}, {"key": []}]
            responses = operation["responses"]
            for status, response in responses.items():
                if status >= "400":
                    response["content"] = _PROBLEM
            responses["default"] = {"description": "Any other problem", "content": _PROBLEM}
    return document
