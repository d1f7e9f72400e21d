"""Groups of failures: jobs that died alike, by the class of their error and the shape of its message."""

import re
from collections.abc import Iterable
from hashlib import blake2s

from msgspec import Struct

from corral.core.job import Job

MAX_SHAPE = 300
MAX_REASON = 2000
"""Characters of a reason that its shape is made of."""
MAX_NAMES = 20

_CLASS = re.compile(r"([A-Za-z_][\w.]{0,99}?(?:Error|Exception|Timeout|[A-Z]\w*)): (.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"  # UUIDs
    r"|[\w.+-]+@[\w-]+\.[\w.-]+"  # addresses of mail
    r"|'[^']{1,200}'|\"[^\"]{1,200}\""
    r"|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b"
    r"|\d+(?:[.,:]\d+)*"
)


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Dead jobs that failed alike."""

    id: str
    error: str
    """The class of the error; empty where the reason and the trace name none."""
    shape: str
    """The message, with `…` for what differs between jobs: numbers, ids, quoted texts."""
    count: int
    first_at: int | None
    last_at: int | None
    names: tuple[str, ...]
    """The names of the jobs, not all of them where there are many."""
    sample_id: str
    """The job that died last."""
    sample_reason: str


def failure_of(job: Job) -> tuple[str, str]:
    """Return the class of a job's last error and the shape of its message.

    >>> failure_of(Job(name="a", data={}, queue="q", reason="KeyError: no user 17 for 'ada@x.org'"))
    ('KeyError', 'no user … for …')
    """
    reason = (job.reason or "")[:MAX_REASON].strip()
    match = _CLASS.match(reason)
    if match:
        error, message = match[1].rpartition(".")[2], match[2]
    else:
        error, message = _class_in_trace(job), reason
    if len(message) > 1 and message[0] == message[-1] and message[0] in "'\"":
        message = message[1:-1]  # the text of a KeyError is quoted as a whole
    shape = " ".join(_VARIABLE.sub("…", message).split())
    return error, shape[:MAX_SHAPE]


def _class_in_trace(job: Job) -> str:
    for trace in reversed(job.trace):
        for line in reversed(trace[-MAX_REASON:].strip().splitlines()):
            match = _CLASS.match(line.strip())
            if match:
                return match[1].rpartition(".")[2]
    return ""


def group_id(job: Job) -> str:
    """Return the id of a job's group, which is the same wherever and whenever it is computed."""
    return blake2s("\0".join(failure_of(job)).encode("utf-8", "replace"), digest_size=6).hexdigest()


def group_failures(jobs: Iterable[Job]) -> list[FailureGroup]:
    """Return the groups of these jobs, the largest first; the latest job of each comes first in `jobs`."""
    members: dict[str, list[Job]] = {}
    for job in jobs:
        members.setdefault(group_id(job), []).append(job)
    groups = [_group(group, jobs_of) for group, jobs_of in members.items()]
    return sorted(groups, key=lambda group: (-group.count, -(group.last_at or 0)))


def _group(group: str, jobs: list[Job]) -> FailureGroup:
    error, shape = failure_of(jobs[0])
    times = [job.finished_at for job in jobs if job.finished_at]
    return FailureGroup(
        id=group,
        error=error,
        shape=shape,
        count=len(jobs),
        first_at=min(times, default=None),
        last_at=max(times, default=None),
        names=tuple(sorted({job.name for job in jobs})[:MAX_NAMES]),
        sample_id=jobs[0].id,
        sample_reason=(jobs[0].reason or "")[:MAX_REASON],
    )
