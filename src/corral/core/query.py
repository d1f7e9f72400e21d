"""Queries for jobs: conditions such as `state = dead and data.user.id = 17`, as text and as values."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
from msgspec import Struct

from corral.core.failures import group_id
from corral.core.job import Job, JobState
from corral.errors import InvalidOptions, short_repr

MAX_TEXT = 2000
MAX_CONDITIONS = 20
SYNTAX = (
    'write conditions such as state = dead and data.user.id = 17 and data ~ "ada@" and created > -1h; '
    "fields are id, name, state, reason, worker, group, attempts, priority, created, started, finished, "
    "data, result and progress, operators = != ~ < <= > >="
)

_CONDITION = re.compile(
    r"\s*(?P<field>[a-z]+)(?P<path>(?:\.[^\s.=~<>!]+)*)\s*(?P<op>!=|<=|>=|=|~|<|>)\s*"
    r'(?P<value>"(?:[^"\\]|\\.)*"|\S+)\s*(?P<end>and\b|$)',
    re.IGNORECASE,
)
_RELATIVE = re.compile(r"-([0-9]{1,9})(s|m|h|d)")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FIELDS: dict[str, Callable[[Job], Any]] = {
    "id": lambda job: job.id,
    "name": lambda job: job.name,
    "state": lambda job: job.state.value if job.state else None,
    "reason": lambda job: job.reason,
    "worker": lambda job: job.worker,
    "group": lambda job: group_id(job) if job.reason is not None else None,
    "attempts": lambda job: job.attempts_made,
    "priority": lambda job: job.options.priority,
    "created": lambda job: job.created_at,
    "started": lambda job: job.started_at,
    "finished": lambda job: job.finished_at,
    "data": lambda job: job.data,
    "result": lambda job: job.result,
    "progress": lambda job: job.progress,
}
_TIMES = frozenset({"created", "started", "finished"})
_WITH_PATH = frozenset({"data", "result", "progress"})


class Condition(Struct, frozen=True):
    """One condition of a query."""

    field: str
    path: tuple[str, ...]
    """Keys and indexes inside `data`, `result` or `progress`."""
    operator: str
    value: Any

    def has(self, job: Job) -> bool:
        """Return whether a job fulfils it."""
        actual = _FIELDS[self.field](job)
        for step in self.path:
            actual = _step(actual, step)
        match self.operator:
            case "=":
                return _equal(actual, self.value)
            case "!=":
                return not _equal(actual, self.value)
            case "~":
                return actual is not None and _text(self.value).lower() in _text(actual).lower()
        return _ordered(actual, self.value, self.operator)


def parse_query(text: str, now: int) -> tuple[Condition, ...]:
    """Return the conditions of a query; times are ms since the epoch, ISO 8601, or `-1h`: an hour ago.

    >>> [(one.field, one.path, one.operator, one.value) for one in parse_query("data.user.id = 17", 0)]
    [('data', ('user', 'id'), '=', 17)]
    """
    if len(text) > MAX_TEXT:
        raise InvalidOptions(f"the query has {len(text)} characters; use at most {MAX_TEXT}")
    conditions: list[Condition] = []
    position, has_more = 0, bool(text.strip())
    while has_more:
        match = _CONDITION.match(text, position)
        if match is None or len(conditions) == MAX_CONDITIONS:
            raise InvalidOptions(f"{short_repr(text[position:])} is not a condition; {SYNTAX}")
        conditions.append(_condition(match, now))
        position, has_more = match.end(), bool(match["end"])
    return tuple(conditions)


def _condition(match: "re.Match[str]", now: int) -> Condition:
    field, path = match["field"].lower(), tuple(filter(None, match["path"].split(".")))
    if field not in _FIELDS or (path and field not in _WITH_PATH):
        raise InvalidOptions(f"there is no field {match['field'] + match['path']!r}; {SYNTAX}")
    value = _value(match["value"])
    if field in _TIMES:
        value = _time(match["value"], now)
    elif field == "state" and value not in list(JobState):
        raise InvalidOptions(f"there is no state {short_repr(value)}; use {', '.join(JobState)}")
    elif field in ("id", "name", "reason", "worker", "group") and not isinstance(value, str):
        value = match["value"]
    return Condition(field, path, match["op"], value)


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _time(text: str, now: int) -> int:
    text = text.strip('"')
    if match := _RELATIVE.fullmatch(text):
        return now - int(match[1]) * _UNITS_MS[match[2]]
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOptions(
            f"{short_repr(text)} is not a time; use 2026-01-31T08:00, -1h, or ms since the epoch"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _step(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _equal(actual: Any, value: Any) -> bool:
    # 17 and "17" are the same to somebody who searches
    return bool(actual == value) or (actual is not None and _text(actual) == _text(value))


def _ordered(actual: Any, value: Any, operator: str) -> bool:
    numbers = isinstance(actual, int | float) and isinstance(value, int | float)
    if not numbers and not (isinstance(actual, str) and isinstance(value, str)):
        return False
    if operator.endswith("=") and actual == value:
        return True
    return bool(actual < value) if operator[0] == "<" else bool(actual > value)
