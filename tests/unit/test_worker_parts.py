"""The small parts of the worker: registry, loops, errors from afar, clocks."""

import asyncio
import errno

import pytest

from corral.core.known_errors import FailureKind
from corral.core.ports import Profile, Recovery, Rest, RestReason
from corral.core.retry import classify
from corral.errors import InvalidOptions, LockMissing, Postpone, RedisConnectionError
from corral.telemetry.logs import logger
from corral.telemetry.metrics import Metrics
from corral.worker import ANY_NAME, HandlerKind, HandlerRegistry, WorkerConfig, default_name
from corral.worker.attempt import Moment
from corral.worker.events import Monitor
from corral.worker.maintenance import PromotionTask, RecoveryTask
from corral.worker.processes.errors import RemoteError, describe, rebuild
from corral.worker.waiting import JobWait
from tests.support.logs import capture_logs
from tests.support.polling import becomes_true, forever

# -- registry ----------------------------------------------------------------------------


async def sample(job):
    pass


def plain(job):
    pass


def test_the_registry_sees_what_kind_of_handler_it_is_given():
    registry = HandlerRegistry()
    assert registry.add("a", sample).kind is HandlerKind.ASYNC
    assert registry.add("b", plain).kind is HandlerKind.SYNC
    assert registry.add("c", plain, process=True).kind is HandlerKind.PROCESS
    assert registry.find("d") is None
    default = registry.add(ANY_NAME, plain)
    assert registry.find("d") is default
    assert registry.names == ["*", "a", "b", "c"]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_makes_no_sense_is_refused(timeout):
    with pytest.raises(InvalidOptions, match="timeout="):
        HandlerRegistry().add("a", sample, timeout=timeout)


def test_a_name_has_one_handler_and_a_handler_is_a_function():
    registry = HandlerRegistry()
    registry.add("a", sample)
    with pytest.raises(InvalidOptions, match="has a handler already"):
        registry.add("a", plain)
    with pytest.raises(InvalidOptions, match="no function"):
        registry.add("b", "not a function")


def test_worker_names_say_where_they_run():
    host_and_process, _, random = default_name().rpartition("-")
    assert host_and_process.rpartition("-")[2].isdigit()
    assert len(random) == 6
    assert default_name() != default_name()


# -- loops ----------------------------------------------------------------------------


def config(metrics=None, **profile):
    return WorkerConfig(
        queue="q",
        handlers=HandlerRegistry(),
        open_connections=None,
        profile=Profile(name="w", **profile),
        delays=lambda tries: 0.0,
        metrics=metrics or Metrics().queue("bullmq", "q"),
    )


class SlowSweeper:
    """A broker whose recovery lasts until it is released."""

    def __init__(self):
        self.release = asyncio.Event()
        self.recovered = self.promoted = 0

    async def recover(self, owner=None):
        self.recovered += 1
        await self.release.wait()
        return Recovery(requeued=["1", "2"])

    async def promote(self):
        self.promoted += 1
        raise RedisConnectionError("nobody there")


async def test_a_recovery_that_still_runs_is_not_started_again_and_the_skip_is_counted():
    metrics, sweeper, adopted = Metrics(), SlowSweeper(), []

    def value(name):
        return metrics.registry.get_sample_value(name, {"protocol": "bullmq", "queue": "q"})

    with capture_logs() as logs:
        settings = config(metrics=metrics.queue("bullmq", "q"), recover_ms=20)
        loop = RecoveryTask(settings, sweeper, adopted.extend)
        assert await becomes_true(lambda: value("corral_recoveries_skipped_total") >= 2)
        assert sweeper.recovered == 1
        sweeper.release.set()
        assert await becomes_true(lambda: value("corral_jobs_stalled_total") >= 2)
        await loop.stop()
    assert any("skipped" in log["event"] for log in logs)
    count = sweeper.recovered
    await asyncio.sleep(0.06)
    assert sweeper.recovered == count


async def test_a_loop_outlives_a_server_that_is_away():
    sweeper = SlowSweeper()
    with capture_logs() as logs:
        loop = PromotionTask(config(promote_ms=10), sweeper)
        assert await becomes_true(lambda: sweeper.promoted >= 3)
        await loop.stop()
    assert "nobody there" in logs[0]["event"]


class EndlessWait:
    """A broker whose wait never ends."""

    async def wait(self, rest):
        await forever()


@pytest.mark.parametrize(
    ("newer", "is_outdated"),
    [
        (None, True),
        (Rest(RestReason.PAUSED), True),
        (Rest(RestReason.DRAINED, 500), True),
        (Rest(RestReason.DRAINED, 1000), False),
        (Rest(RestReason.DRAINED, 2000), False),
        (Rest(RestReason.DRAINED), False),
    ],
)
async def test_a_wait_is_outdated_by_another_reason_and_by_an_earlier_time(newer, is_outdated):
    settings = config()
    monitor = Monitor(logger("worker"), settings.metrics, None)
    wait = JobWait(settings, EndlessWait(), monitor, woken=lambda: None)
    assert not wait.is_outdated(newer), "nothing is waited for"
    wait.start(Rest(RestReason.DRAINED, 1000))
    assert wait.is_outdated(newer) is is_outdated
    await wait.stop()


# -- errors from afar ----------------------------------------------------------------------------


def there_and_back(error):
    return rebuild(describe(error, "trace", None))


def test_an_error_keeps_its_class_its_text_and_its_number():
    error = there_and_back(OSError(errno.ECONNRESET, "reset"))
    assert isinstance(error, ConnectionResetError)
    assert error.errno == errno.ECONNRESET
    assert classify(error) is FailureKind.TRANSIENT
    assert there_and_back(ValueError("bad")).args == ("bad",)
    assert there_and_back(Postpone(250)).delay == 250
    assert isinstance(there_and_back(ExceptionGroup("one", [KeyError("k")])), KeyError)
    assert "several" in str(there_and_back(ExceptionGroup("several", [KeyError("k"), ValueError("v")])))


def test_an_error_whose_class_is_unknown_here_is_the_nearest_that_is_known():
    remote = RemoteError(
        classes=[("far.away", "TooFar"), ("builtins", "TimeoutError"), ("builtins", "OSError")],
        text="too far",
        arguments=[],
        attributes={"miles": 3},
        trace="",
    )
    error = rebuild(remote)
    assert isinstance(error, TimeoutError)
    assert (type(error).__name__, type(error).__module__, str(error), error.miles) == (
        "TooFar",
        "far.away",
        "too far",
        3,
    )


def test_an_error_that_cannot_even_say_its_text_is_still_told():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    assert str(there_and_back(Mute())) == "Mute"


def test_nothing_but_exceptions_is_looked_up():
    remote = RemoteError(classes=[("os", "system")], text="x", arguments=["true"], attributes={}, trace="")
    assert str(rebuild(remote)) == "x"


def test_a_refusal_reaches_the_child_as_the_same_error():
    assert isinstance(there_and_back(LockMissing("7")), LockMissing)
    assert "job 7" in str(there_and_back(LockMissing("7")))
    assert isinstance(there_and_back(OverflowError("odd")), OverflowError)


# -- clocks ----------------------------------------------------------------------------


def test_a_gap_is_seen_by_the_clock_that_saw_more_of_it():
    slept = Moment(wall=60_000, steady=1_000).since(Moment(wall=0, steady=0))
    set_back = Moment(wall=-60_000, steady=5_000).since(Moment(wall=0, steady=0))
    assert (slept, set_back) == (60_000, 5_000)
