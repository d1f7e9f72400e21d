"""`corral dlq` in every protocol."""

from collections.abc import Callable

from corral import JobState
from corral.core.options import Capability
from tests.cli.conftest import AppQueue, Shell


def test_dead_jobs_of_every_protocol_are_listed_the_last_first(
    app_queues: Callable[[str], AppQueue], shell: Shell
) -> None:
    died = [
        (protocol, app_queues(protocol).work({"fail": f"in {protocol}"})[0])
        for protocol in ("bullmq", "streams", "bridgemq")
    ]
    assert shell("dlq", "ls", "--reason", "nowhere").out == (
        "no dead jobs with a reason containing 'nowhere'\n"
    )
    result = shell("dlq", "ls", "--json")
    assert [(job["protocol"], job["id"]) for job in result.documents] == list(reversed(died))
    [found] = shell("dlq", "ls", "--reason", "in bridge", "--json").documents
    assert found["protocol"] == "bridgemq"


def test_a_dead_job_is_shown_with_its_tracebacks(app_queue: AppQueue, shell: Shell) -> None:
    dead, fine = app_queue.work({"fail": "no such user"}, {})
    result = shell("dlq", "show", *app_queue.words, dead)
    assert result.code == 0
    assert "no such user" in result.out
    other = shell("dlq", "show", *app_queue.words, fine)
    assert (other.code, "is completed, not dead" in other.err) == (1, True)


def test_dead_jobs_are_replayed_by_reason_and_by_id(app_queue: AppQueue, shell: Shell) -> None:
    ids = app_queue.work({"fail": "timed out"}, {"fail": "no such user"}, {"fail": "timed out twice"})
    words = ("dlq", "replay", *app_queue.words, "--reason", "timed out")
    assert "replay 2 dead jobs with a reason containing 'timed out'" in shell(*words).err
    result = shell(*words, "--yes")
    if not app_queue.can(Capability.RETRY):
        assert (result.code, "has no replay" in result.err) == (1, True)
        return
    assert [app_queue.state(job_id) for job_id in ids] == [JobState.WAITING, JobState.DEAD, JobState.WAITING]
    wrong = shell("dlq", "replay", *app_queue.words, ids[0], ids[1], "--yes")
    assert (wrong.code, "nothing was changed" in wrong.err) == (1, True)
    assert app_queue.state(ids[1]) is JobState.DEAD
    assert shell("dlq", "replay", *app_queue.words, ids[1], "--yes").code == 0
    assert app_queue.state(ids[1]) is JobState.WAITING


def test_dead_jobs_of_every_queue_are_replayed_together(
    app_queues: Callable[[str], AppQueue], shell: Shell
) -> None:
    protocols = {protocol: app_queues(protocol) for protocol in ("bullmq", "streams", "bridgemq")}
    died = {protocol: app_queue.work({"fail": "x"})[0] for protocol, app_queue in protocols.items()}
    unconfirmed = shell("dlq", "replay")
    assert "replay 2 dead jobs of 'mail' (bullmq: 1), 'mail' (bridgemq: 1)" in unconfirmed.err
    assert shell("dlq", "replay", "--yes").code == 0
    states = {protocol: app_queue.state(died[protocol]) for protocol, app_queue in protocols.items()}
    assert states == {"bullmq": JobState.WAITING, "streams": JobState.DEAD, "bridgemq": JobState.WAITING}


def test_dead_jobs_are_discarded(app_queue: AppQueue, shell: Shell) -> None:
    kept, discarded = app_queue.work({"fail": "x", "n": 1}, {"fail": "x", "n": 2})
    words = ("dlq", "discard", *app_queue.words, "--data", '"n": 2')
    assert "delete 1 dead job with data containing" in shell(*words).err
    assert shell(*words, "--yes").code == 0
    assert (app_queue.job(discarded), app_queue.state(kept)) == (None, JobState.DEAD)
