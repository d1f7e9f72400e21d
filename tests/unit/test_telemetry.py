"""Metrics, all of them documented; logs that are data."""

import io
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from corral.core.job import Job
from corral.core.outcome import Completed, Retry
from corral.protocols import protocol_named
from corral.telemetry import logs
from corral.telemetry.metric_names import STALLED
from corral.telemetry.metrics import Metrics, RunTimes

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def exported_names(metrics):
    """Names as Prometheus stores them, without those a histogram or counter adds."""
    names = set()
    for family in metrics.registry.collect():
        names.add(f"{family.name}_total" if family.type == "counter" else family.name)
    return names


def test_every_metric_is_documented_and_every_documented_metric_exists():
    metrics = Metrics()
    metrics.queue("bullmq", "mail", protocol_named("bullmq").spec.metric_names)
    documented = set(re.findall(r"^\| `(\w+)` ", PAGE.read_text(), re.MULTILINE))
    # what a protocol tells of itself is read from its server, and held against this page there
    own = {name for name in documented if name.startswith("bridgemq_")}
    assert documented - own == exported_names(metrics)


def test_every_alert_asks_for_metrics_that_exist():
    text = PAGE.read_text()
    rules = text[text.index("```yaml") : text.index("```", text.index("```yaml") + 3)]
    used = set(re.findall(r"\b(?:bullmq|corral)_\w+", rules))
    base = {re.sub(r"_(bucket|sum|count)$", "", name) if "seconds" in name else name for name in used}
    assert len(re.findall(r"- alert: \w+", rules)) >= 6
    metrics = Metrics()
    metrics.queue("streams", "jobs")
    assert base <= exported_names(metrics), "alerts are for every protocol"


def test_a_turn_is_counted_in_one_go():
    metrics = Metrics()
    queue = metrics.queue("bullmq", "mail")
    queue.turn({Completed: 3, Retry: 1}, [0.0005, 0.004, 0.2, 400.0], running=7)
    queue.turn({Completed: 1}, [0.0005], running=0)
    labels = {"protocol": "bullmq", "queue": "mail"}

    def value(name, **more):
        return metrics.registry.get_sample_value(name, {**labels, **more})

    assert value("corral_jobs_total", outcome="completed") == 4
    assert value("corral_jobs_total", outcome="retry") == 1
    assert value("corral_turns_total") == 2
    assert value("corral_jobs_running") == 0
    assert value("corral_job_duration_seconds_count") == 5
    assert value("corral_job_duration_seconds_sum") == pytest.approx(400.205)
    assert value("corral_job_duration_seconds_bucket", le="0.001") == 2
    assert value("corral_job_duration_seconds_bucket", le="0.005") == 3
    assert value("corral_job_duration_seconds_bucket", le="+Inf") == 5


def test_an_edge_belongs_to_its_bucket_as_prometheus_counts():
    times = RunTimes()
    times.observe(("bullmq", "mail"), [0.005])
    [family] = times.collect()
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels}
    assert (buckets["0.001"], buckets["0.005"]) == (0, 1)


def test_metrics_go_into_the_registry_they_are_given_and_two_can_live_side_by_side():
    registry = CollectorRegistry()
    mine, other = Metrics(registry), Metrics()
    mine.queue("bullmq", "mail").add(STALLED, 2)
    assert b'corral_jobs_stalled_total{protocol="bullmq",queue="mail"} 2.0' in mine.exposition()
    assert b'queue="mail"' not in other.exposition()
    assert mine.queue("bullmq", "mail") is mine.queue("bullmq", "mail")


def test_a_protocols_own_names_stand_beside_corrals_for_its_queues_only():
    metrics = Metrics()
    own_names = protocol_named("bullmq").spec.metric_names
    metrics.queue("bullmq", "mail", own_names).renewed(3, 1, 0.002)
    metrics.queue("streams", "jobs", protocol_named("streams").spec.metric_names).renewed(2, 0, 0.002)
    mail, jobs = {"protocol": "bullmq", "queue": "mail"}, {"protocol": "streams", "queue": "jobs"}
    value = metrics.registry.get_sample_value
    assert (value("corral_lock_renewals_total", mail), value("corral_lock_renewals_total", jobs)) == (3, 2)
    assert (value("bullmq_heartbeat_total", mail), value("bullmq_heartbeat_total", jobs)) == (3, None)
    assert value("bullmq_heartbeat_failure_total", mail) == 1
    assert value("bullmq_lock_extend_duration_seconds_count", mail) == 1


def test_a_queue_has_its_counts_by_state():
    metrics = Metrics()
    metrics.count_jobs("mail", {"waiting": 3, "active": 1})
    assert b'bullmq_job_count{queue="mail",state="waiting"} 3.0' in metrics.exposition()


@pytest.fixture
def stream():
    handlers, level = logging.root.handlers[:], logging.root.level
    yield io.StringIO()
    logging.basicConfig(handlers=handlers, level=level, force=True)


def test_logs_are_one_json_object_a_line(stream):
    logs.configure(level="info", json=True, stream=stream)
    log = logs.logger("worker", queue="mail")
    log.debug("not shown")
    log.warning("something", job="7")
    [line] = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("timestamp")
    assert entry == {"event": "something", "level": "warning", "part": "worker", "queue": "mail", "job": "7"}


def test_logs_for_people_are_plain_lines(stream):
    logs.configure(level="debug", json=False, stream=stream)
    logs.logger("worker").debug("hello", job="7")
    assert "hello" in stream.getvalue()
    assert "job=7" in stream.getvalue()


def test_a_program_sees_the_lines_in_its_own_logging(caplog):
    with caplog.at_level("INFO"):
        logs.logger("worker", queue="mail").info("working", concurrency=3)
    [record] = caplog.records
    assert (record.name, record.levelname) == ("corral.worker", "INFO")
    assert record.getMessage() == "working queue=mail concurrency=3"
    assert record.pathname == __file__


def test_a_program_that_configures_nothing_prints_nothing():
    program = """
import logging
from corral.telemetry.logs import logger
logger("worker").error("nobody asked for this")
assert logging.root.handlers == []
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert (ended.stdout, ended.stderr) == (b"", b"")


def test_a_line_of_a_handler_and_its_trace_are_json_too(stream):
    logs.configure(json=True, stream=stream)
    logging.getLogger("shop").warning("%s is empty", "the till")
    try:
        raise KeyError("milk")
    except KeyError:
        logs.logger("worker").exception("failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["logger"], first["event"], first["level"]) == ("shop", "the till is empty", "warning")
    assert second["exception"].endswith("KeyError: 'milk'")


def test_a_closed_stream_is_no_error(stream, capsys):
    logs.configure(json=True, stream=stream)
    stream.close()
    logs.logger("worker").warning("nobody reads this")
    assert capsys.readouterr().err == "", "logging prints no trace of it either"


def test_an_unknown_log_level_is_refused():
    with pytest.raises(ValueError, match="log level 'loud' is unknown; use one of debug, info"):
        logs.configure(level="loud")


def test_a_handlers_line_for_people_has_its_job(stream):
    logs.configure(json=False, stream=stream)
    assert logs.configuration() == ("info", False)
    logging.getLogger("shop").info("outside")
    token = logs.current_job.set(Job(id="7", name="send", queue="mail", data=None, attempts_made=1))
    logging.getLogger("shop").info("inside")
    logs.current_job.reset(token)
    outside, inside = stream.getvalue().splitlines()
    assert outside.endswith("shop: outside")
    assert inside.endswith("shop: inside queue=mail job=7 name=send attempt=2")
