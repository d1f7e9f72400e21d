"""What a job is: the fields people read, from what they gave or from what stands on the wire."""

from collections.abc import Mapping
from typing import Any, Self

from corral.bullmq.options import EXCLUSIVE, long_options, normalized_backoff
from corral.bullmq.queue_base import QueueBase
from corral.core import payload
from corral.core.job import Claim
from corral.protocols.bullmq.options import POLICIES, encode_options
from corral.worker.worker import wall_clock


class JobFields:
    """A job's fields, by the names the official client gives them.

    They are as of the moment the job was added or read; nothing here follows the server by itself.
    """

    def __init__(
        self,
        queue: QueueBase,
        name: str,
        data: Any,
        opts: Mapping[str, Any] | None = None,
        job_id: str | None = None,
    ) -> None:
        given = dict(opts or {})
        asked = [option for option in EXCLUSIVE if given.get(option)]
        if len(asked) > 1:
            raise ValueError(f"The following options cannot be used together: {', '.join(asked)}")
        self.queue = queue
        self.name = name
        self.data = data
        self.id: str | None = given.get("jobId") or job_id
        self.repeatJobKey: str | None = given.pop("repeatJobKey", None)
        self.opts: dict[str, Any] = {
            "attempts": 0,
            "delay": 0,
            **given,
            "backoff": normalized_backoff(given.get("backoff")),
        }
        self.timestamp: int = given.get("timestamp") or wall_clock()
        self.delay: int = given.get("delay") or 0
        self.priority: int = given.get("priority") or 0
        self.attempts: int = given.get("attempts", 1)
        self.removeOnComplete: Any = given.get("removeOnComplete", True)
        self.removeOnFail: Any = given.get("removeOnFail", False)
        parent = given.get("parent")
        self.parentKey: str | None = parent_key(parent)
        self.parent: dict[str, Any] | None = None
        if parent:
            self.parent = {"id": parent.get("id"), "queueKey": parent.get("queue")}
            self.parent |= {short: True for long, short in POLICIES.items() if given.get(long)}
        deduplication = given.get("deduplication") or given.get("debounce")
        self.deduplicationId: str | None = (
            deduplication.get("id") if isinstance(deduplication, Mapping) else None
        )
        self._unborn()

    def _unborn(self) -> None:
        """What nobody knows of a job that was only just made."""
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
        """The lock this job is held under, while a worker holds it."""

    @property
    def key(self) -> str:
        """The id, of a job that has one."""
        assert self.id is not None, "this job was not added"
        return self.id

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
        """The fields as a plain dict."""
        return {name: value for name, value in vars(self).items() if name not in ("queue", "token")}

    def __repr__(self) -> str:
        return f"<Job {self.name!r} id={self.id!r} queue={self.queue.name!r}>"

    # -- from the wire --------------------------------------------------------------------------------------

    @classmethod
    def fromJSON(cls, queue: QueueBase, rawData: Mapping[str, str], jobId: str | None = None) -> Self:
        """A job from the fields of its hash, as text."""
        opts = payload.decode(rawData.get("opts") or "{}")
        job = cls(
            queue,
            rawData.get("name", ""),
            payload.decode(rawData.get("data") or "{}"),
            long_options(opts) if isinstance(opts, dict) else {},
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
        if rawData.get("returnvalue") is not None:
            job.returnvalue = _result(rawData["returnvalue"])
        traces = payload.decode(rawData.get("stacktrace") or "[]")
        job.stacktrace = traces if isinstance(traces, list) else []
        job.parentKey = rawData.get("parentKey") or job.parentKey
        if rawData.get("parent"):
            job.parent = payload.decode(rawData["parent"])
        return job

    @classmethod
    def held(cls, queue: QueueBase, claim: Claim) -> Self:
        """The job of a claim, for the processor that runs it."""
        job = claim.job
        # written out, and not by way of text: this runs once a job
        made = cls.__new__(cls)
        made.queue = queue
        made.name, made.data, made.id = job.name, job.data, job.id
        options = job.options
        made.opts = {"delay": 0, "backoff": None, **long_options(encode_options(options, ""))}
        if not job.id.isdecimal():
            made.opts["jobId"] = job.id
        made.timestamp, made.delay, made.priority = job.created_at, 0, options.priority
        made.attempts = options.attempts
        made.removeOnComplete = made.opts.get("removeOnComplete", True)
        made.removeOnFail = made.opts.get("removeOnFail", False)
        made._unborn()
        made.processedOn, made.attemptsStarted = job.started_at or 0, job.starts
        made.attemptsMade, made.stalledCounter = job.attempts_made, job.stalls
        made.progress = 0 if job.progress is None else job.progress
        made.failedReason, made.stacktrace = job.reason, list(job.trace)
        made.deferredFailure, made.processedBy = job.doomed, job.worker
        extra = job.extra
        parent = _text(extra.get("parent"))
        made.parent = None if parent is None else payload.decode(parent)
        made.parentKey = _text(extra.get("parentKey"))
        made.repeatJobKey, made.nextRepeatableJobId = _text(extra.get("rjk")), _text(extra.get("nrjid"))
        made.deduplicationId = _text(extra.get("deid"))
        made.token = claim.receipt
        return made


def parent_key(parent: Mapping[str, Any] | None) -> str | None:
    """The key of a parent that is given by its queue and id."""
    return f"{parent.get('queue')}:{parent.get('id')}" if parent else None


def _number(text: str | None) -> int:
    try:
        return int(float(text)) if text else 0
    except ValueError:
        return 0


def _result(text: str) -> Any:
    """What the JSON says; of what is none, the text itself."""
    value = payload.decode(text)
    return text if value == {"_raw": text} and "_raw" not in text else value


def _text(raw: Any) -> str | None:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
