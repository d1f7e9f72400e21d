"""How claims ended, as the turn script of the BridgeMQ protocol reads it."""

import re
from typing import Any, NamedTuple

import orjson

from corral.core.job import Job
from corral.core.outcome import (
    AlreadyMoved,
    Cancelled,
    Completed,
    Dead,
    Outcome,
    Postponed,
    Released,
    Retry,
    Settlement,
)
from corral.protocols.bridgemq.codec import clean, is_front

_ERROR_NAME = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?::|$)")


class Ending(NamedTuple):
    """How one claim ended, as the turn script reads it."""

    id: str
    fence: int
    verb: str
    at: int
    type: str
    attempt: int
    """The number of the attempt that ended."""
    value: bytes = b""
    """The result's JSON."""
    reason: str = ""
    traces: bytes = b"[]"
    told: bytes = b""
    """What the event carries."""
    delay: int = 0
    is_front: bool = False
    keeps_data: bool = False
    summary: bytes = b""


def encode_settlement(settlement: Settlement) -> Ending | None:
    """A row for the turn script; None: nothing to write."""
    claim, outcome, at = settlement.claim, settlement.outcome, settlement.at
    job, receipt = claim.job, claim.receipt
    match outcome:
        case AlreadyMoved():
            return None
        case Completed(result=result):
            return Ending(
                job.id, receipt.fence, "completed", at, job.name, job.attempts_made + 1,
                value=b'{"success":true,"data":%b,%b' % (result, _times(job, at)),
                told=b'{"result":%b}' % result,
                keeps_data=bool(job.options.extra.get("keep_data")),
                summary=_summary(job, receipt.worker),
            )  # fmt: skip
        case Released():
            return Ending(job.id, receipt.fence, "released", at, job.name, job.attempts_made + 1)
        case Postponed(delay=delay):
            return Ending(
                job.id, receipt.fence, "postponed", at, job.name, job.attempts_made + 1, delay=delay
            )
        case Retry(delay=delay, reason=reason, trace=trace):
            return Ending(
                job.id, receipt.fence, "retry", at, job.name, job.attempts_made + 1,
                reason=clean(reason), traces=_traces(job, trace), delay=delay,
                told=orjson.dumps({"reason": clean(reason), "delay": delay}),
                is_front=is_front(job.options.priority),
            )  # fmt: skip
    reason, trace, told = _end(outcome)
    return Ending(
        job.id, receipt.fence, "dead", at, job.name, job.attempts_made + 1,
        value=b'{"success":false,"error":%b,%b' % (_error(reason, trace), _times(job, at)),
        reason=reason, traces=_traces(job, trace), told=orjson.dumps({"reason": reason, **told}),
    )  # fmt: skip


def _end(outcome: Outcome) -> tuple[str, str, dict[str, Any]]:
    """(reason, trace, what else the event tells) of a job that will not run again."""
    match outcome:
        case Dead(reason=reason, trace=trace):
            return clean(reason), clean(trace), {}
        case Cancelled(reason=reason):
            return clean(reason), "", {"cancelled": True}
    return "the handler waits for children, but protocol 'bridgemq' has none", "", {}


def _times(job: Job, at: int) -> bytes:
    took = max(at - job.started_at, 0) if job.started_at else 0
    return b'"completedAt":%d,"processingTime":%d}' % (at, took)


def _error(reason: str, trace: str) -> bytes:
    last = trace.rstrip().rpartition("\n")[2]
    name = _ERROR_NAME.match(last)
    error = {"message": reason, "stack": trace, "name": name.group(1) if name else "Error"}
    return orjson.dumps(error)


def _summary(job: Job, worker: str) -> bytes:
    return orjson.dumps(
        {
            "type": job.name,
            "queue": job.queue,
            "createdAt": job.created_at,
            "startedAt": job.started_at,
            "attempt": job.attempts_made + 1,
            "worker": worker,
        }
    )


def _traces(job: Job, trace: str) -> bytes:
    """Every attempt's trace so far, the newest last."""
    return orjson.dumps([clean(text) for text in (*job.trace, trace) if text])
