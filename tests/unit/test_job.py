"""The job model: frozen values with the documented defaults."""

import pytest
from msgspec.structs import replace

from corral.core.job import Backoff, Claim, Job, JobOptions, Keep


def test_a_change_is_a_copy() -> None:
    job = Job(name="send-email", data={"to": "a@b.c"}, queue="mail")
    tried = replace(job, attempts_made=job.attempts_made + 1)
    assert (job.attempts_made, tried.attempts_made) == (0, 1)


@pytest.mark.parametrize("model", [Job(name="n", data={}, queue="q"), JobOptions(), Backoff(), Keep()])
def test_models_are_frozen(model: object) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        model.name = "other"  # type: ignore[attr-defined]


def test_the_defaults_are_three_attempts_and_a_second_that_doubles() -> None:
    assert JobOptions().attempts == 3
    assert JobOptions().backoff == Backoff("exponential", 1000, 0.0)
    assert (JobOptions().priority, JobOptions().delay, JobOptions().lifo) == (0, 0, False)


def test_a_new_job_has_not_been_tried_and_has_no_result_and_no_reason() -> None:
    job = Job(name="n", data={}, queue="q")
    assert (job.id, job.attempts_made, job.starts, job.stalls) == ("", 0, 0, 0)
    assert (job.result, job.reason, job.trace, job.state) == (None, None, (), None)


def test_jobs_do_not_share_their_extras() -> None:
    one, other = Job(name="a", data={}, queue="q"), Job(name="b", data={}, queue="q")
    one.extra["x"] = 1
    assert other.extra == {}


def test_claims_of_one_job_differ_by_their_receipt() -> None:
    job = Job(name="n", data={}, queue="q", id="1")
    assert Claim(job, "first") != Claim(job, "second")
