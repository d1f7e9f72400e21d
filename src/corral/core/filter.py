"""JobFilter: which jobs a search or a write is about."""

import json

from msgspec import Struct

from corral.core.job import Job, JobState
from corral.core.query import Condition, parse_query


class JobFilter(Struct, frozen=True, kw_only=True):
    """Selects jobs; a criterion that is None selects all. Times are ms since the epoch.

    >>> JobFilter(data="ada@").has(Job(name="send", data={"to": "ada@x.org"}, queue="mail"))
    True
    """

    states: frozenset[JobState] | None = None
    names: frozenset[str] | None = None
    reason: str | None = None
    """A part of the reason of its last failure."""
    data: str | None = None
    """A part of its data, written as JSON."""
    since: int | None = None
    """Created at this time or later."""
    until: int | None = None
    """Created at this time or earlier."""
    ended_since: int | None = None
    """Ended at this time or later; the same for `ended_until`."""
    ended_until: int | None = None
    where: tuple[Condition, ...] = ()
    """Further conditions, all of which must be fulfilled (`parse_query`)."""
    limit: int | None = None
    """At most so many jobs."""

    def has(self, job: Job) -> bool:
        """Return whether the filter selects this job, apart from its limit."""
        return (
            (self.states is None or job.state in self.states)
            and (self.names is None or job.name in self.names)
            and (self.reason is None or self.reason in (job.reason or ""))
            and (self.data is None or self.data in json.dumps(job.data, default=str, ensure_ascii=False))
            and (self.since is None or job.created_at >= self.since)
            and (self.until is None or job.created_at <= self.until)
            and (self.ended_since is None or (job.finished_at or 0) >= self.ended_since)
            and (self.ended_until is None or (job.finished_at or 0) <= self.ended_until)
            and all(condition.has(job) for condition in self.where)
        )


def filter_of(query: str, now: int, limit: int | None = None) -> JobFilter:
    """Return the filter of a query; what the protocols' scripts can check is given to them.

    >>> filter_of("state = dead and name = send", 0).states
    frozenset({<JobState.DEAD: 'dead'>})
    """
    where = parse_query(query, now)
    states = [JobState(one.value) for one in where if (one.field, one.operator) == ("state", "=")]
    names = [one.value for one in where if (one.field, one.operator) == ("name", "=")]
    since = [one.value for one in where if one.field == "created" and one.operator in (">", ">=")]
    until = [one.value for one in where if one.field == "created" and one.operator in ("<", "<=")]
    return JobFilter(
        states=frozenset(states) or None,
        names=frozenset(names) or None,
        since=max(since, default=None),
        until=min(until, default=None),
        where=where,
        limit=limit,
    )
