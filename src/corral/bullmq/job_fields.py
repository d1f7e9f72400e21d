"""JobFields: a job's fields, from the caller's options, from its hash, or from a claim."""

from collections.abc import Mapping
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
        self.repeatJobKey: str | None = options.pop("repeatJobKey", None)
        self.opts: dict[str, Any] = with_defaults(options)
        self.timestamp: int = options.get("timestamp") or queue.connection.clock()
        self.delay: int = options.get("delay") or 0
        self.priority: int = options.get("priority") or 0
        self.attempts: int = options.get("attempts", 1)
        self.removeOnComplete: Any = options.get("removeOnComplete", True)
        self.removeOnFail: Any = options.get("removeOnFail", False)
        parent = options.get("parent")
        self.parentKey: str | None = parent_key(parent)
        self.parent: dict[str, Any] | None = None
        if parent:
            self.parent = {"id": parent.get("id"), "queueKey": parent.get("queue")}
            self.parent |= {short: True for long, short in POLICIES.items() if options.get(long)}
        deduplication = options.get("deduplication") or options.get("debounce")
        self.deduplicationId: str | None = (
            deduplication.get("id") if isinstance(deduplication, Mapping) else None
        )
        self._set_initial()

    def _set_initial(self) -> None:
        """Set the fields that no option decides."""
        self.progress: Any = 0
        self.attemptsMade = 0
        self.attemptsStarted = 0
        self.stalledCounter = 0
        self.processedOn: int | None = 0
        self.finishedOn: int | None = 0
        self.returnvalue: Any = None
        self.failedReason: str | None = None
        self.deferredFailure: str | None = None
        self.stacktrace: list[str] = []
        self.processedBy: str | None = None
        self.nextRepeatableJobId: str | None = None
        self.discarded = False
        self.token: str | None = None
        """The lock value under which a worker holds this job."""

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
        return {name: value for name, value in vars(self).items() if name not in ("queue", "token")}

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
        # every job passes here, so the fields are set directly and not by way of the hash's text
        source, options, extra = claim.job, claim.job.options, claim.job.extra
        job = cls.__new__(cls)
        job.queue, job.name, job.data, job.id = queue, source.name, source.data, source.id
        assert isinstance(options, ReadOptions)
        written = written_options(options.raw)
        job.opts = with_defaults(written)
        job.timestamp, job.delay, job.priority = source.created_at, 0, options.priority
        job.attempts = written.get("attempts", 1)
        job.removeOnComplete = job.opts.get("removeOnComplete", True)
        job.removeOnFail = job.opts.get("removeOnFail", False)
        job._set_initial()
        job.processedOn, job.attemptsStarted = source.started_at or 0, source.starts
        job.attemptsMade, job.stalledCounter = source.attempts_made, source.stalls
        job.progress = 0 if source.progress is None else source.progress
        job.failedReason, job.stacktrace = source.reason, list(source.trace)
        job.deferredFailure, job.processedBy = source.doomed, source.worker
        parent = _text(extra.get("parent"))
        job.parent = None if parent is None else payload.decode(parent)
        job.parentKey = _text(extra.get("parentKey"))
        job.repeatJobKey, job.nextRepeatableJobId = _text(extra.get("rjk")), _text(extra.get("nrjid"))
        job.deduplicationId = _text(extra.get("deid"))
        job.token = claim.receipt
        return job


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
