"""Every name, method and argument of the official client exists here, but for its internals.

The official surface was recorded from the client itself; where that is installed, the record is checked.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corral.bullmq import QueueEvents, Worker
from corral.bullmq.error_code import ErrorCode, official_error
from tests.dropin.surface import defaults, options, surface
from tests.support.official import official_python, official_version

HERE = Path(__file__).parent
RECORDED: dict[str, dict[str, list[str]]] = json.loads((HERE / "official_surface.json").read_text())
DETAILS: dict[str, dict[str, Any]] = json.loads((HERE / "official_details.json").read_text())

INNER = {
    # parts of its own engine
    "LockManager": None,
    "Worker": {
        "cancelProcessing", "extendLocks", "getBlockTimeout", "isConnectionError", "jobScheduler",
        "maximumBlockTimeout", "minimumBlockTimeout", "moveToActive", "nextJobFromJobData", "processJob",
        "retryIfFailed", "runStalledJobsCheck", "waitForJob",
    },
    "FlowProducer": {"addChildren", "addNode", "addNodes", "queueFromNode"},
    "Job": {"updateStacktrace"},
}  # fmt: skip
OTHERWISE = {
    # takes no repeat strategy: Corral reads cron patterns itself
    ("JobScheduler", "__init__"),
}

METHODS = [
    (kind, method)
    for kind, methods in RECORDED.items()
    for method in methods
    if kind not in INNER or (INNER[kind] is not None and method not in (INNER[kind] or ()))
]
OURS = surface("corral.bullmq")
OUR_DEFAULTS = defaults("corral.bullmq")
OUR_OPTIONS = options("corral.bullmq")


def test_every_class_is_here_but_the_lock_manager() -> None:
    assert sorted(set(RECORDED) - set(OURS)) == ["LockManager"]


@pytest.mark.parametrize(("kind", "method"), METHODS, ids=".".join)
def test_a_method_takes_what_the_official_one_takes(kind: str, method: str) -> None:
    assert method in OURS[kind], f"{kind}.{method} is missing"
    if (kind, method) in OTHERWISE:
        return
    arguments = RECORDED[kind][method]
    assert OURS[kind][method][: len(arguments)] == arguments


def test_every_name_left_out_is_an_official_one() -> None:
    for kind, left_out in INNER.items():
        assert (left_out or set()) <= set(RECORDED[kind])


@pytest.mark.parametrize(("kind", "method"), METHODS, ids=".".join)
def test_a_default_is_the_official_one(kind: str, method: str) -> None:
    if (kind, method) in OTHERWISE:
        return
    usual = DETAILS["defaults"].get(f"{kind}.{method}", {})
    ours = OUR_DEFAULTS.get(f"{kind}.{method}", {})
    assert {name: ours.get(name) for name in usual} == usual


@pytest.mark.parametrize("kind", DETAILS["options"])
def test_every_official_option_has_its_name_here(kind: str) -> None:
    assert sorted(set(DETAILS["options"][kind]) - set(OUR_OPTIONS[kind])) == []


@pytest.mark.parametrize("code", DETAILS["refusals"])
def test_a_refusal_has_the_official_type_code_and_message(code: str) -> None:
    number, kind, sentence = DETAILS["refusals"][code]
    error = official_error(ErrorCode[code], "moveToFinished", job="7", parent="bull:mail:7")
    if code == "ParentJobCannotBeReplaced":
        # there it is the parent's key where a flow is added, as in Node, and the child's id elsewhere
        sentence = sentence.replace("job 7", "job bull:mail:7")
    assert (str(vars(error)["code"]), type(error).__name__, str(error)) == (number, kind, sentence)


@pytest.mark.parametrize(
    ("part", "record"), [((), RECORDED), (("details",), DETAILS)], ids=["surface", "details"]
)
def test_the_record_is_the_official_clients(part: tuple[str, ...], record: Any) -> None:
    if official_version() is None:
        pytest.skip(f"the official client is not installed at {official_python()}: run `make setup`")
    done = subprocess.run(
        [str(official_python()), str(HERE / "surface.py"), "bullmq", *part],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout) == record


async def test_a_worker_without_options_has_the_official_defaults() -> None:
    worker = Worker("mail", None)
    assert {name: value for name, value in worker.opts.items() if name != "autorun"} == {
        "drainDelay": 5, "concurrency": 1, "lockDuration": 30000, "lockRenewTime": 15000,
        "maxStalledCount": 1, "stalledInterval": 30000, "runRetryDelay": 15000,
    }  # fmt: skip
    events = QueueEvents("mail", {"autorun": False})
    assert (events.opts["blockingTimeout"], events.opts["lastEventId"], events.prefix) == (10000, "$", "bull")
