"""The JSON Schemas of jobs and events, made from the classes and checks of the code that produces them."""

from typing import Any

import msgspec

from corral.core import options
from corral.core.event import OF_QUEUES, EventKind, JobEvent
from corral.core.job import DEFAULT_ATTEMPTS, DEFAULT_BACKOFF_MS, DEFAULT_KEEP_LOGS, JobOptions
from corral.core.naming import LONGEST_ID, LONGEST_JOB_NAME
from corral.core.payload import LIMIT_BYTES, MOST_PROGRESS

Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_MILLISECONDS = {"type": "integer", "minimum": 0}
_DEFAULTS = JobOptions()


def event_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of a `JobEvent` as JSON.

    >>> event_schema()["required"]
    ['id', 'protocol', 'queue', 'at', 'kind']
    """
    declared = msgspec.json.schema(JobEvent)["$defs"]["JobEvent"]
    has_data: Schema = {"required": ["data"]}
    delay = {"type": "object", "required": ["delay"], "properties": {"delay": dict(_MILLISECONDS)}}
    reason = {"type": "object", "minProperties": 1}
    of_jobs = [str(kind) for kind in EventKind if kind not in OF_QUEUES]
    return {
        "$schema": _DRAFT,
        "$id": "urn:corral:event-schema",
        **declared,
        "title": "Job event",
        "description": "Something that happened to a job or its queue, as commands and HTTP print it.",
        "allOf": [
            {
                "description": "What happens to a job names it",
                "if": {"properties": {"kind": {"enum": of_jobs}}},
                "then": {"required": ["job_id"], "properties": {"job_id": {"type": "string"}}},
            },
            _rule(EventKind.PROGRESS, "A progress has a value", {**has_data, "not": _data({"type": "null"})}),
            _rule(
                EventKind.DEAD,
                "A dead job has a reason, in the protocol's own field",
                {**has_data, **_data(reason)},
            ),
            _rule(EventKind.RETRY, "A retry says after how many milliseconds", {**has_data, **_data(delay)}),
        ],
    }


def _rule(kind: EventKind, description: str, then: Schema) -> Schema:
    return {"description": description, "if": {"properties": {"kind": {"const": str(kind)}}}, "then": then}


def _data(schema: Schema) -> Schema:
    return {"properties": {"data": schema}}


def payload_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of a job: id, name, data, opts, and its state.

    >>> payload_schema()["required"]
    ['id', 'name', 'data', 'opts']
    """
    megabytes = LIMIT_BYTES // 1024**2
    return {
        "$schema": _DRAFT,
        "$id": "urn:corral:job-payload-schema",
        "title": "Job",
        "description": f"A job; its data and opts together are at most {megabytes} MB as JSON.",
        "type": "object",
        "required": ["id", "name", "data", "opts"],
        "properties": {
            "id": {
                "type": "string",
                "minLength": 1,
                "maxLength": LONGEST_ID,
                "description": "UUID or custom; unique in its queue",
            },
            "name": {"type": "string", "minLength": 1, "maxLength": LONGEST_JOB_NAME},
            "data": {
                "type": ["object", "array", "string", "number", "boolean"],
                "description": "Any JSON but null",
            },
            "opts": {"$ref": "#/$defs/options"},
            "progress": {"$ref": "#/$defs/progress"},
            "delay": {"$ref": "#/$defs/milliseconds"},
            "timestamp": {
                "$ref": "#/$defs/milliseconds",
                "description": "When it was added, since the epoch",
            },
            "attemptsMade": {"type": "integer", "minimum": 0},
            "processedOn": {"$ref": "#/$defs/milliseconds"},
            "finishedOn": {"$ref": "#/$defs/milliseconds"},
            "workerId": {"type": "string"},
            "returnvalue": {"description": "The result of a job that completed"},
            "failedReason": {"type": "string", "description": "Why a job failed"},
            "stacktrace": {"type": "array", "items": {"type": "string"}},
        },
        "not": {"required": ["returnvalue", "failedReason"]},
        "$defs": {
            "milliseconds": dict(_MILLISECONDS),
            "progress": {
                "description": f"0 to {MOST_PROGRESS}, or anything that is no number",
                "if": {"type": "number"},
                "then": {"minimum": 0, "maximum": MOST_PROGRESS},
            },
            "options": _options_schema(),
            "backoff": _backoff_schema(),
            "removal": _removal_schema(),
        },
    }


def _whole(number: options.WholeNumber, **more: Any) -> Schema:
    return {"type": "integer", "minimum": number.lowest, "maximum": number.highest, **more}


def _options_schema() -> Schema:
    keep_logs = _whole(options.checked_keep_logs, default=DEFAULT_KEEP_LOGS)
    backoff = {"type": "exponential", "delay": DEFAULT_BACKOFF_MS}
    return {
        "type": "object",
        "properties": {
            "priority": _whole(
                options.checked_priority,
                default=_DEFAULTS.priority,
                description="0: none; else lower runs earlier",
            ),
            "delay": _whole(options.checked_delay_ms, default=_DEFAULTS.delay),
            "attempts": _whole(options.checked_attempts, default=DEFAULT_ATTEMPTS),
            "backoff": {"$ref": "#/$defs/backoff", "default": backoff},
            "removeOnComplete": {"$ref": "#/$defs/removal"},
            "removeOnFail": {"$ref": "#/$defs/removal"},
            "lifo": {"type": "boolean", "default": _DEFAULTS.lifo},
            "keepLogs": keep_logs,
            "kl": {**keep_logs, "description": "keepLogs, as it stands in Redis"},
        },
    }


def _backoff_schema() -> Schema:
    parts: Schema = {
        "type": {"enum": list(options.BACKOFF_KINDS)},
        "delay": _whole(options.checked_backoff_ms, default=DEFAULT_BACKOFF_MS),
        "jitter": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
    }
    return {
        "oneOf": [
            _whole(options.checked_backoff_ms, description="Fixed, in milliseconds"),
            {
                "type": "object",
                "required": ["type"],
                "properties": {part: parts[part] for part in options.BACKOFF_PARTS},
                "additionalProperties": False,
            },
        ]
    }


def _removal_schema() -> Schema:
    parts: Schema = {
        "age": _whole(options.checked_keep_age, description="Seconds"),
        "count": _whole(options.checked_keep_count),
    }
    return {
        "description": "true or 0: remove at once; false: keep all; a number: keep so many of the latest",
        "oneOf": [
            {"type": "boolean"},
            _whole(options.checked_keep_count),
            {
                "type": "object",
                "minProperties": 1,
                "properties": {part: parts[part] for part in options.KEEP_PARTS},
                "additionalProperties": False,
            },
        ],
    }
