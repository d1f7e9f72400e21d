"""Queries for jobs, and groups of failures."""

from typing import Any

import pytest

from corral.core.failures import failure_of, group_failures, group_id
from corral.core.filter import filter_of
from corral.core.job import Job, JobState
from corral.errors import InvalidOptions

HOUR = 3_600_000
NOW = 10 * HOUR


def job(**values: Any) -> Job:
    defaults: dict[str, Any] = {
        "name": "send",
        "data": {},
        "queue": "mail",
        "id": "17",
        "state": JobState.DEAD,
    }
    return Job(**{**defaults, **values})


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("", {}),
        ("id = 17", {}),
        ("name = send and state = dead", {}),
        ("data.user.id = 17", {"data": {"user": {"id": 17}}}),
        ('data.user.id = "17"', {"data": {"user": {"id": 17}}}),
        ("data.items.1.sku = b", {"data": {"items": [{"sku": "a"}, {"sku": "b"}]}}),
        ('data ~ "ada@"', {"data": {"to": "Ada@x.org"}}),
        ("data.note ~ brown", {"data": {"note": "the Brown cow"}}),
        ("data.n >= 3 and data.n < 4", {"data": {"n": 3}}),
        ("data.flag = true", {"data": {"flag": True}}),
        ("data.gone = null", {"data": {}}),
        ("reason ~ timeout", {"reason": "Timeout after 3 s"}),
        ("worker != other", {"worker": "mailer-1"}),
        ("attempts > 1", {"attempts_made": 2}),
        ("created > -1h", {"created_at": NOW - HOUR + 1}),
        ("created < 1970-01-01T02:00", {"created_at": HOUR}),
        ("result.sent = true", {"result": {"sent": True}}),
        ('data.text = "a and b = c"', {"data": {"text": "a and b = c"}}),
    ],
)
def test_a_condition_finds_the_jobs_it_describes(query: str, values: dict[str, Any]) -> None:
    assert filter_of(query, NOW).has(job(**values))


@pytest.mark.parametrize(
    "query",
    ["id = 18", "name = other", "state = active", "data.user.id = 17", "data ~ x", "data.n > 1", "reason ~ a",
     "created > -1h", "worker = a", "group = 000000000000"],
)  # fmt: skip
def test_and_no_others(query: str) -> None:
    assert not filter_of(query, NOW).has(job(created_at=1))


@pytest.mark.parametrize(
    "query",
    ["data", "data =", "nothing = 1", "name.first = x", "state = asleep", "created > soon",
     "id = 1 or id = 2",
     "id = 1 and", "and id = 1", "x" * 2001],
)  # fmt: skip
def test_what_is_no_query_is_refused_with_the_way_out(query: str) -> None:
    with pytest.raises(InvalidOptions, match=r"use|write"):
        filter_of(query, NOW)


def test_what_scripts_can_check_is_given_to_them() -> None:
    jobs = filter_of("state = dead and name = send and created > -1h and created < -1m", NOW)
    assert (jobs.states, jobs.names) == ({JobState.DEAD}, {"send"})
    assert (jobs.since, jobs.until) == (NOW - HOUR, NOW - 60_000)


@pytest.mark.parametrize(
    ("reason", "trace", "failure"),
    [
        ("KeyError: no user 17", (), ("KeyError", "no user …")),
        ("smtplib.SMTPException: closed after 3.5 s", (), ("SMTPException", "closed after … s")),
        ("mailbox ada@x.org is full", ("Traceback\n  File\nValueError: mailbox ada@x.org is full",),
         ("ValueError", "mailbox … is full")),
        ("job 0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55 lost", (), ("", "job … lost")),
        (None, (), ("", "")),
    ],
)  # fmt: skip
def test_failures_have_a_class_and_a_shape(reason: str, trace: tuple[str, ...], failure: Any) -> None:
    assert failure_of(job(reason=reason, trace=trace)) == failure


def test_jobs_that_failed_alike_are_one_group() -> None:
    jobs = [job(id=str(n), reason=f"OSError: no host {n}.example", finished_at=n) for n in (3, 2, 1)]
    groups = group_failures([job(id="9", reason="KeyError: x", finished_at=9), *jobs])
    assert [(group.error, group.count, group.first_at, group.last_at) for group in groups] == [
        ("OSError", 3, 1, 3),
        ("KeyError", 1, 9, 9),
    ]
    assert groups[0].sample_id == "3"
    assert {group_id(one) for one in jobs} == {groups[0].id}
    assert filter_of(f"group = {groups[0].id}", 0).has(jobs[0])
