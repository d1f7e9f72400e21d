"""Parts of the OpenAPI document that FastAPI cannot read off the code."""

from typing import Any

from corral.gateway.models import NewJob, ProblemView
from corral.gateway.problems import KINDS, MEDIA_TYPE

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int, more: Responses | None = None) -> Responses:
    """The problems a route may answer with, by their status; and what else it answers."""
    described: Responses = dict(more or {})
    for status in statuses:
        names = [f"`{kind.name}`" for kind in KINDS if kind.status == status]
        described[status] = {
            "description": f"Problem: {', '.join(names)}",
            "model": ProblemView,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemView"}}},
        }
    return described


NEW_JOB: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": NewJob.model_json_schema()}},
    },
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
