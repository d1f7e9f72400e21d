"""JobTemplate: what new jobs with one name and equal options have in common, made once for all of them."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import orjson
from msgspec import Struct

from corral.bullmq.job import Job
from corral.bullmq.options import encode_data
from corral.bullmq.queue_base import QueueBase
from corral.core import payload
from corral.errors import InvalidPayload
from corral.protocols.bullmq.codec import Envelope, JobRows, encode_job

MOST_TEMPLATES = 256
_OWN = frozenset(
    {"jobId", "timestamp", "sizeLimit", "parent", "deduplication", "debounce", "repeat", "repeatJobKey"}
)
"""Options that a job has for itself, or that are checked with its data."""


class JobTemplate(Struct, frozen=True):
    """The name, the options and the envelope of jobs that differ in their data and time only."""

    name: str
    written: Mapping[str, Any]
    envelope: Envelope


class JobTemplates:
    """The templates of one queue, by the name and the options of its jobs."""

    def __init__(self, queue: QueueBase) -> None:
        self._queue = queue
        self._templates: dict[bytes, JobTemplate] = {}

    def encode(
        self, jobs: Sequence[tuple[str, Any, Mapping[str, Any]]], timestamp: int
    ) -> tuple[list[Job], JobRows]:
        """Return new jobs of this time from their names, data and options, and their rows for the protocol;
        ValueError if one is refused."""
        queue, known = self._queue, self._templates
        made: list[Job] = []
        envelopes: list[Envelope] = []
        dated: dict[bytes, Envelope] = {}
        """Envelopes with this call's time, by the key of their template."""
        for name, data, options in jobs:
            key = _key(name, options)
            if key is None:
                job = Job(queue, name, data, options)
                envelope = encode_job(job.encode()[0])[0]
            else:
                template = known.get(key) or self._add(key, name, options)
                job = Job.__new__(Job)
                job.queue, job.name, job.data = queue, name, data
                job.written, job.timestamp = template.written, timestamp
                envelope = dated.get(key) or dated.setdefault(key, _dated(template.envelope, timestamp))
            made.append(job)
            envelopes.append(envelope)
        return made, JobRows(envelopes, _encode_each([job.data for job in made]))

    def _add(self, key: bytes, name: str, options: Mapping[str, Any]) -> JobTemplate:
        job = Job(self._queue, name, None, deepcopy(dict(options)))
        if len(self._templates) >= MOST_TEMPLATES:
            self._templates.clear()
        template = JobTemplate(name, job.written, encode_job(job.encode()[0])[0])
        self._templates[key] = template
        return template


def _dated(envelope: Envelope, timestamp: int) -> Envelope:
    return (*envelope[:3], timestamp, *envelope[4:])


def _key(name: str, options: Mapping[str, Any]) -> bytes | None:
    """Return what jobs with the same template have in common; None for a job that needs its own."""
    if not _OWN.isdisjoint(options):
        return None
    try:
        return orjson.dumps((name, options))
    except TypeError:
        return None


def _encode_each(values: Sequence[Any]) -> list[bytes]:
    try:
        return payload.encode_each(values)
    except InvalidPayload:
        return [encode_data(value) for value in values]
