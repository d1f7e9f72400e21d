"""The names people import: a change here is a change of the public interface, and goes into the changelog."""

import corral

NAMES = """
AddInterrupted Added Backoff Capability Corral CorralError EventKind InvalidArguments InvalidName
InvalidOptions InvalidPayload Job JobCall JobCancelled JobContext JobEvent JobFailed JobFilter JobHandle
JobOptions JobOutcome JobState JobTimeout JobType Keep Limit NotDurable Postpone Queue RedisConnectionError
RedisError Refused Release
ResultGone ScheduleRule ScheduledJob SettleError SyncJobContext Transient Unrecoverable Unsupported Worker
WorkerEvent WorkerEventKind
"""
ALIASES = {"JobOutcome"}
"""Types that are unions, which cannot have a docstring."""


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(corral.__all__) == sorted(NAMES.split())


def test_each_public_name_is_there_and_documented() -> None:
    for name in set(corral.__all__) - ALIASES:
        assert getattr(corral, name).__doc__, f"corral.{name} has no docstring"


def test_nothing_public_is_left_out() -> None:
    """What the package holds beside its modules, once all of it is imported, is listed."""
    for name in corral.__all__:
        getattr(corral, name)
    held = {
        name
        for name, value in vars(corral).items()
        if not name.startswith("_") and not isinstance(value, type(corral))
    }
    assert held == set(corral.__all__)
