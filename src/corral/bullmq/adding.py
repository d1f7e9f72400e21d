"""New jobs on their way into a queue."""

from collections.abc import Sequence

from corral.bullmq.errors import code_of, raised
from corral.bullmq.job import Job
from corral.bullmq.options import encode
from corral.bullmq.queue_base import QueueBase
from corral.errors import Refused
from corral.protocols.bullmq.submitting import Row, Rows, encode_job, submit_rows


def row_of(job: Job) -> Row:
    """A row for the protocol's submit script, checked by the contract's rules.

    The native API's size limit does not apply here, so the data is put into the row afterwards.
    """
    made, data = encode(job.id or "", job.name, job.data, job.opts, job.timestamp, job.queue.name)
    envelope, _ = encode_job(made)
    return envelope, data


async def add_jobs(queue: QueueBase, jobs: Sequence[Job]) -> None:
    """Add the jobs and tell each its id. All are checked before the first is written; a refusal for a
    parent that is missing is raised when all others are added."""
    rows = Rows.of(row_of(job) for job in jobs)
    answers = await submit_rows(queue.store, queue.queueKeys, rows)
    refusal: Exception | None = None
    for job, told in zip(jobs, answers, strict=True):
        if isinstance(told, Refused):
            refusal = refusal or refused(told, job)
        else:
            job.id = told
    if refusal is not None:
        raise refusal


def refused(error: Refused, job: Job) -> Exception:
    """Why a job was not added, in the official client's words."""
    code = code_of(error)
    if code is None:
        return error
    return raised(code, "addJob", job=job.id or "", parent=job.parentKey or "")
