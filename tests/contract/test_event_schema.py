"""Every event that a queue's log has is valid by the schema that is shipped."""

from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from corral.core.options import Capability
from corral.core.outcome import Cancelled, Completed, Dead, Outcome, Postponed, Released, Retry
from corral.core.schema import event_schema
from tests.support.harness import QueueHarness

EVENT = Draft202012Validator(event_schema())


async def test_every_event_of_a_full_run_is_valid(harness: QueueHarness) -> None:
    broker, reporter = harness.broker(), harness.reporter()
    outcomes: list[Outcome] = [Completed(b"[1]"), Dead("no"), Released(), Cancelled()]
    options: dict[str, Any] = {}
    if harness.can(Capability.RETRY):
        outcomes += [Retry(0, "no"), Retry(60_000, "no"), Postponed(60_000)]
        options["attempts"] = 5
    for outcome in outcomes:
        await broker.submit([harness.job(**options)])
        claim = await harness.claim(broker)
        await reporter.progress(claim, {"progress": 25, "message": "scene 1"})
        await reporter.log(claim, "a line")
        await reporter.emit(claim, "step", {"n": 1})
        await broker.turn([harness.settle(claim, outcome)], 0)
        await harness.operator.cancel([claim.job.id])
    if harness.can(Capability.DELAY):
        await broker.submit([harness.job(delay=60_000)])
    if harness.can(Capability.PAUSE):
        await harness.operator.pause()
        await harness.operator.resume()
    events = await harness.events.range(count=1000)
    assert {"added", "active", "progress", "completed", "dead"} <= {event.kind for event in events}
    for event in events:
        document = msgspec.to_builtins(event)
        assert list(EVENT.iter_errors(document)) == [], document
