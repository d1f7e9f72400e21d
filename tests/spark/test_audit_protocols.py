"""The audit of real protocols: right while all is right, and naming the job when it is not."""

import threading
from functools import partial

from corral.core.job import Keep
from corral.core.options import Capability
from corral.core.outcome import Completed, Dead, Released, Retry
from corral.spark.lake.audit.audit import audit_server, live_events
from corral.spark.lake.audit.findings import AuditExit, AuditVerdict
from tests.spark.harness import SparkHarness

RECORDS = {
    "bullmq": "bull:{queue}:{id}",
    "streams": "job:{id}",
    "bridgemq": "bridge:jobs:{part}:{id}",
}
END_EVENTS = {
    "bullmq": {"event": "completed", "jobId": "{id}", "returnvalue": "null", "prev": "active"},
    "streams": {"type": "done", "ts": "1", "step": "worker.finish", "data": "{{}}", "job_id": "{id}"},
    "bridgemq": {"event": "completed", "jobId": "{id}", "queue": "{queue}", "type": "work"},
}


def delete_record(harness: SparkHarness, job_id: str) -> None:
    """Take a job's record away, as no part of Corral ever would."""
    name = RECORDS[harness.protocol.spec.name]
    parts = ("data", "status", "result") if "{part}" in name else ("",)
    with harness.server.connect() as client:
        gone = client.delete(*(name.format(queue=harness.queue, id=job_id, part=part) for part in parts))
    assert gone >= 1


def tell_another_end(harness: SparkHarness, job_id: str) -> None:
    fields = {
        name: value.format(id=job_id, queue=harness.queue)
        for name, value in END_EVENTS[harness.protocol.spec.name].items()
    }
    with harness.server.connect() as client:
        client.xadd(harness.events_key(), fields)


def live_a_little(harness: SparkHarness) -> list[str]:
    """Jobs that completed, died, were removed, retried, delayed, given back, and some that still wait."""
    ids = harness.add(12)
    harness.work(most=4, outcome=lambda claim: Completed(b'{"ok":true}'))
    harness.work(most=2, outcome=lambda claim: Dead("boom"))
    harness.run(partial(_remove, harness, [ids[0], ids[-1]]))
    harness.work(most=2, outcome=lambda claim: Released())
    if Capability.RETRY in harness.protocol.spec.capabilities:
        harness.work(most=2, outcome=lambda claim: Retry(60_000, "again"))
        harness.work(most=1, outcome=lambda claim: Retry(0, "at once"))
    if Capability.DELAY in harness.protocol.spec.capabilities:
        ids += harness.add(2, delay=60_000)
    return ids


async def _remove(harness: SparkHarness, ids: list[str]) -> None:
    assert sorted(await harness.operator.remove(ids)) == sorted(ids)


def test_a_protocol_that_is_right_has_lost_nothing(spark, harness: SparkHarness):
    ids = live_a_little(harness)
    found = audit_server(spark, harness.address())
    assert found.findings == ()
    assert (found.exit_code, found.jobs) == (AuditExit.NOTHING_LOST, len(ids))
    # two of the ended ones are the removed: one that had ended, one that had not
    assert found.counts == {"ended": 7, "alive": len(ids) - 7}
    assert found.sentence().startswith("nothing lost")


def test_what_is_wrong_is_named(spark, harness: SparkHarness):
    waiting = harness.add(5)
    lost = waiting[3]
    harness.work(most=2)
    delete_record(harness, lost)
    done = [event.job_id for event in harness.read_events() if event.kind == "completed"]
    tell_another_end(harness, done[0])
    found = audit_server(spark, harness.address())
    by_verdict = {one.verdict: one for one in found.findings if one.verdict is not AuditVerdict.ORPHANED}
    assert {verdict: one.job_id for verdict, one in by_verdict.items()} == {
        AuditVerdict.LOST: lost,
        AuditVerdict.DOUBLED: done[0],
    }
    # its id is still listed, and nothing is behind it
    assert [one.job_id for one in found.findings if one.verdict is AuditVerdict.ORPHANED] == [lost]
    assert found.exit_code == AuditExit.WRONG


def test_trimmed_events_make_it_unprovable(spark, bullmq: SparkHarness):
    bullmq.add(6)
    bullmq.work(most=3)
    gone = bullmq.trim(2)
    found = audit_server(spark, bullmq.address())
    assert found.exit_code == AuditExit.UNPROVABLE
    assert f"{gone} events were trimmed" in str(found.findings[0].detail)
    assert found.findings[0].job_id is None


def test_jobs_that_were_cleaned_away_are_unprovable_and_not_lost(spark, bullmq: SparkHarness):
    kept = bullmq.add(1, delay=3_600_000)
    swept = bullmq.add(3)
    assert sorted(bullmq.run(lambda: bullmq.operator.clean_state(0, 0, "wait"))) == sorted(swept)
    found = audit_server(spark, bullmq.address())
    assert found.exit_code == AuditExit.UNPROVABLE
    assert sorted(str(one.job_id) for one in found.findings) == sorted(swept)
    assert all("was cleaned since then" in str(one.detail) for one in found.findings)
    assert found.counts["alive"] == len(kept)


def test_removal_policies_are_right_and_places_are_looked_at(spark, bullmq: SparkHarness):
    bullmq.add(6, keep_completed=Keep(count=0))
    bullmq.work(most=4)
    [twice, unlisted] = [event.job_id for event in bullmq.read_events() if event.kind == "added"][4:]
    with bullmq.server.connect() as client:
        client.zadd(f"bull:{bullmq.queue}:delayed", {twice: 1})
        client.lrem(f"bull:{bullmq.queue}:wait", 0, unlisted)
        client.set(f"bull:{bullmq.queue}:{twice}:lock", "left behind")
        client.rpush(f"bull:{bullmq.queue}:wait", "no-such-job")
    found = audit_server(spark, bullmq.address())
    assert sorted((str(one.verdict), one.job_id) for one in found.findings) == [
        ("doubled", twice),
        ("leaked", twice),
        ("orphaned", unlisted),
        ("orphaned", "no-such-job"),
    ]
    assert found.counts["ended"] == 4
    details = {one.verdict: one.detail for one in found.findings}
    assert details[AuditVerdict.DOUBLED] == "is listed in 'delayed' and 'wait' at once"


def test_a_counter_that_leaks_is_named_once_for_all_queues(spark, server):
    with SparkHarness(server, "bridgemq") as harness:
        harness.add(2)
        harness.add(2, queue="other")
        with server.connect() as client:
            client.set("bridge:ratelimit:concurrent:work", 3)
        found = audit_server(spark, harness.address("*"))
        assert [(one.verdict, one.job_id) for one in found.findings] == [(AuditVerdict.LEAKED, "work")]
        assert found.counts == {"alive": 4, "leaked": 1}


def test_a_queue_that_is_worked_meanwhile_is_right(spark, bullmq: SparkHarness):
    bullmq.add(300, keep_completed=Keep(count=5))
    stop = threading.Event()

    def churn() -> None:
        with SparkHarness(bullmq.server, "bullmq") as other:
            while not stop.is_set():
                other.work(most=10, outcome=lambda claim: Released())
                other.work(most=10)
                other.add(10, keep_completed=Keep(count=5))

    with bullmq.server.connect() as client:
        client.hset(f"bull:{bullmq.queue}:meta", "opts.maxLenEvents", 1_000_000)
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        found = audit_server(spark, bullmq.address())
    finally:
        stop.set()
        thread.join()
    assert found.findings == ()
    assert found.exit_code == AuditExit.NOTHING_LOST
    assert live_events(spark, bullmq.address()).where("event = 'completed'").count() > 0


def test_an_empty_place_has_lost_nothing(spark, bullmq: SparkHarness):
    found = audit_server(spark, bullmq.address("no-*"))
    assert (found.exit_code, found.jobs, found.findings) == (AuditExit.NOTHING_LOST, 0, ())
    assert found.sentence() == "nothing lost, for there is no job at all"
