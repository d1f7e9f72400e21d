"""JobFields: a job's fields, from the caller's options, from its hash, or from a claim."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property, lru_cache
from typing import Any, Self

from corral.bullmq.error_code import error_number
from corral.bullmq.options import (
    check,
    check_parent_policy,
    encode_data,
    submit_options,
    with_defaults,
    written_options,
)
from corral.bullmq.queue_base import QueueBase
from corral.core import payload
from corral.core.job import Claim
from corral.core.job import Job as CoreJob
from corral.core.ports import Added
from corral.errors import Refused
from corral.protocols.bullmq.options import POLICIES, ReadOptions


class JobFields:
    """A job's fields, named as in the official client.

    They are as of the moment the job was added or read; they do not follow the server by themselves.
    """

    # what a new job has: every job passes here, so only what differs is set
    repeatJobKey: str | None = None
    parentKey: str | None = None
    parent: dict[str, Any] | None = None
    deduplicationId: str | None = None
    progress: Any = 0
    attemptsMade: int = 0
    attemptsStarted: int = 0
    stalledCounter: int = 0
    processedOn: int | None = 0
    finishedOn: int | None = 0
    returnvalue: Any = None
    failedReason: str | None = None
    deferredFailure: str | None = None
    processedBy: str | None = None
    nextRepeatableJobId: str | None = None
    discarded: bool = False
    token: str | None = None
    """The lock value under which a worker holds this job."""

    def __init__(
        self,
        queue: QueueBase,
        name: str,
        data: Any,
        opts: Mapping[str, Any] | None = None,
        job_id: str | None = None,
    ) -> None:
        options = dict(opts or {})
        check_parent_policy(options)
        self.queue = queue
        self.name = name
        self.data = data
        self.id: str | int | None = options.get("jobId") or job_id
        """Of a job that `addBulk` did not add, the number of the error."""
        self.repeatJobKey = options.pop("repeatJobKey", None)
        self.written: Mapping[str, Any] = options
        """The options without defaults, which jobs may share: not to be changed."""
        self.opts = with_defaults(options)
        self.timestamp: int = options.get("timestamp") or queue.connection.clock()
        parent = options.get("parent")
        if parent:
            self.parentKey = parent_key(parent)
            self.parent = {"id": parent.get("id"), "queueKey": parent.get("queue")}
            self.parent |= {short: True for long, short in POLICIES.items() if options.get(long)}
        deduplication = options.get("deduplication") or options.get("debounce")
        if isinstance(deduplication, Mapping):
            self.deduplicationId = deduplication.get("id")

    # -- fields of most jobs, made when first read -----------------------------------------------------------

    @cached_property
    def opts(self) -> dict[str, Any]:
        """The options, with defaults."""
        return with_defaults(deepcopy(dict(self.written)))

    @cached_property
    def delay(self) -> int:
        return self.written.get("delay") or 0

    @cached_property
    def priority(self) -> int:
        return self.written.get("priority") or 0

    @cached_property
    def attempts(self) -> int:
        attempts: int = self.written.get("attempts", 1)
        return attempts

    @cached_property
    def removeOnComplete(self) -> Any:
        return deepcopy(self.written.get("removeOnComplete", True))

    @cached_property
    def removeOnFail(self) -> Any:
        return deepcopy(self.written.get("removeOnFail", False))

    @cached_property
    def stacktrace(self) -> list[str]:
        return []

    @property
    def key(self) -> str:
        """The id of a job that has one."""
        assert isinstance(self.id, str), "this job was not added"
        return self.id

    def set_answer(self, answer: Added | Refused) -> None:
        """Set the id that the job has got, or the number of the error it was refused with."""
        self.id = error_number(answer) if isinstance(answer, Refused) else answer.id

    @property
    def deduplication_id(self) -> str | None:
        """Another name of `deduplicationId`."""
        return self.deduplicationId

    @property
    def queueName(self) -> str:
        return self.queue.name

    @property
    def prefix(self) -> str:
        return self.queue.prefix

    @property
    def queueQualifiedName(self) -> str:
        return self.queue.qualifiedName

    def toJSON(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return {
            "name": self.name,
            "data": self.data,
            "id": self.id,
            "opts": self.opts,
            "timestamp": self.timestamp,
            "delay": self.delay,
            "priority": self.priority,
            "attempts": self.attempts,
            "removeOnComplete": self.removeOnComplete,
            "removeOnFail": self.removeOnFail,
            "repeatJobKey": self.repeatJobKey,
            "nextRepeatableJobId": self.nextRepeatableJobId,
            "parentKey": self.parentKey,
            "parent": self.parent,
            "deduplicationId": self.deduplicationId,
            "progress": self.progress,
            "attemptsMade": self.attemptsMade,
            "attemptsStarted": self.attemptsStarted,
            "stalledCounter": self.stalledCounter,
            "processedOn": self.processedOn,
            "finishedOn": self.finishedOn,
            "returnvalue": self.returnvalue,
            "failedReason": self.failedReason,
            "deferredFailure": self.deferredFailure,
            "stacktrace": self.stacktrace,
            "processedBy": self.processedBy,
            "discarded": self.discarded,
        }

    def __repr__(self) -> str:
        return f"<Job {self.name!r} id={self.id!r} queue={self.queue.name!r}>"

    def encode(self) -> tuple[CoreJob, bytes]:
        """Return the job for the protocol, and apart from it its data as JSON: ValueError if it is refused.

        The native API's size limit does not apply here, so the data is not part of the job.
        """
        data = encode_data(self.data)
        check(self.name, self.opts, data)
        job = CoreJob(
            id=str(self.id or ""),
            name=self.name,
            data=0,
            queue=self.queue.name,
            options=submit_options(self.opts),
            created_at=self.timestamp,
        )
        return job, data

    @classmethod
    def fromJSON(cls, queue: QueueBase, rawData: Mapping[str, str], jobId: str | None = None) -> Self:
        """Return a job from the fields of its hash, as text."""
        job = cls(
            queue,
            rawData.get("name", ""),
            payload.decode(rawData.get("data") or "{}"),
            written_options(rawData.get("opts") or "{}"),
        )
        job.id = jobId or rawData.get("id") or job.id
        job.progress = payload.decode(rawData.get("progress") or "0")
        job.delay = _number(rawData.get("delay"))
        job.priority = _number(rawData.get("priority"))
        job.timestamp = _number(rawData.get("timestamp"))
        job.processedOn = _number(rawData.get("processedOn"))
        job.finishedOn = _number(rawData.get("finishedOn"))
        job.attemptsStarted = _number(rawData.get("ats"))
        job.attemptsMade = _number(rawData.get("attemptsMade") or rawData.get("atm"))
        job.stalledCounter = _number(rawData.get("stc"))
        job.failedReason = rawData.get("failedReason") or None
        job.deferredFailure = rawData.get("defa") or None
        job.processedBy = rawData.get("pb") or None
        job.nextRepeatableJobId = rawData.get("nrjid") or None
        job.repeatJobKey = rawData.get("rjk") or None
        job.deduplicationId = rawData.get("deid") or job.deduplicationId
        job.returnvalue = getReturnValue(rawData.get("returnvalue"))
        traces = payload.decode(rawData.get("stacktrace") or "[]")
        job.stacktrace = traces if isinstance(traces, list) else []
        job.parentKey = rawData.get("parentKey") or job.parentKey
        if rawData.get("parent"):
            job.parent = payload.decode(rawData["parent"])
        return job

    @classmethod
    def from_claim(cls, queue: QueueBase, claim: Claim) -> Self:
        """Return the job of a claim, for the processor that runs it."""
        # every job passes here, so the fields are set directly, and only those that a new job has not
        source, options = claim.job, claim.job.options
        assert isinstance(options, ReadOptions)
        job = cls.__new__(cls)
        job.queue, job.name, job.data, job.id = queue, source.name, source.data, source.id
        job.written, job.timestamp, job.delay = _written(options.raw), source.created_at, 0
        job.processedOn, job.attemptsStarted = source.started_at or 0, source.starts
        job.processedBy, job.token = source.worker, claim.receipt
        if source.starts > 1 or source.doomed is not None:
            job.attemptsMade, job.stalledCounter = source.attempts_made, source.stalls
            job.failedReason, job.stacktrace = source.reason, list(source.trace)
            job.deferredFailure = source.doomed
        if source.progress is not None:
            job.progress = source.progress
        if source.extra:
            job._set_relations(source.extra)
        return job

    def _set_relations(self, extra: Mapping[str, Any]) -> None:
        parent = _text(extra.get("parent"))
        self.parent = None if parent is None else payload.decode(parent)
        self.parentKey = _text(extra.get("parentKey"))
        self.repeatJobKey, self.nextRepeatableJobId = _text(extra.get("rjk")), _text(extra.get("nrjid"))
        self.deduplicationId = _text(extra.get("deid"))


@lru_cache(maxsize=256)
def _written(raw: bytes) -> Mapping[str, Any]:
    """Return the options of a job's `opts` field, which jobs share."""
    return written_options(raw)


def getReturnValue(value: Any) -> Any:
    """Return the value of a JSON text; text that is no JSON, and any other value, as it is."""
    if not isinstance(value, str | bytes):
        return value
    decoded = payload.decode(value)
    return value if decoded == {"_raw": _text(value)} else decoded


def parent_key(parent: Mapping[str, Any] | None) -> str | None:
    """Return the key of a parent given by its queue and id."""
    return f"{parent.get('queue')}:{parent.get('id')}" if parent else None


def _number(text: str | None) -> int:
    try:
        return int(float(text)) if text else 0
    except ValueError:
        return 0


def _text(raw: Any) -> str | None:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
