"""Codecs of all protocols: whatever stands in a key, a job or an event comes out of it, never a crash."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.core.event import JobEvent, events_of
from corral.core.job import Job, JobState
from corral.protocols.bridgemq import codec as bridgemq
from corral.protocols.bridgemq.events import decode_event
from corral.protocols.bullmq import codec as bullmq
from corral.protocols.bullmq.events import decode_columns
from corral.protocols.streams import codec as streams
from corral.protocols.streams.events import decode_events
from tests.support.worker_processes import scaled

FEW, MANY = 60, 20_000

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
numbers = st.sampled_from(
    [b"0", b"-1", b"1.5", b"1e999", b"nan", b"-inf", b"9" * 400, b" 7 ", b"0x10", b"1_000", b"", "٣".encode()]
)
any_bytes = st.binary(max_size=12) | json_values.map(orjson.dumps) | numbers | st.just(b"[" * 3000)
states = st.sampled_from([None, *JobState])


def known(*names: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from(names) | st.binary(max_size=6)


def hashes(*names: bytes) -> st.SearchStrategy[list[bytes]]:
    """Fields of a hash and their values, flat as the server answers them."""
    fields = st.dictionaries(known(*names), any_bytes, max_size=len(names))
    return fields.map(lambda pairs: [word for pair in pairs.items() for word in pair])


def objects(*names: str) -> st.SearchStrategy[bytes]:
    """JSON objects with these names, and other bytes."""
    return st.dictionaries(st.sampled_from(names), json_values, max_size=6).map(orjson.dumps) | any_bytes


BULLMQ = hashes(
    b"name", b"data", b"opts", b"timestamp", b"delay", b"priority", b"atm", b"attemptsMade", b"ats", b"stc",
    b"pb", b"defa", b"failedReason", b"returnvalue", b"stacktrace", b"failedAttempts", b"processedOn",
    b"finishedOn",
    b"progress", b"parentKey", b"parent", b"rjk", b"deid",
)  # fmt: skip
STREAMS = hashes(
    b"job_id", b"task", b"payload", b"status", b"result", b"error", b"created_ts", b"updated_ts", b"ttl_s",
    b"progress", b"progress_message", b"failed_attempts", b"idempotency_key",
)  # fmt: skip
BULLMQ_EVENT = hashes(
    b"event", b"jobId", b"prev", b"name", b"returnvalue", b"failedReason", b"delay", b"data", b"attemptsMade"
)
STREAMS_EVENT = hashes(b"type", b"ts", b"step", b"data", b"job_id", b"task", b"progress")
BRIDGEMQ_EVENT = hashes(b"event", b"jobId", b"type", b"queue", b"data", b"attempt", b"at", b"prev", b"worker")
BRIDGEMQ = objects(
    "id", "type", "queue", "data", "payload", "priority", "attempt", "attempts", "maxAttempts", "retry",
    "backoff", "schedule", "createdAt", "startedAt", "completedAt", "error", "rate", "target",
    "keepLogs", "worker",
)  # fmt: skip
ENTRY = st.sampled_from([b"1-0", b"1700000000000-3", b"18446744073709551615-18446744073709551615"])


def bullmq_job(draw: Callable[[Any], Any]) -> Any:
    flat = draw(BULLMQ)
    claimed_at = draw(st.sampled_from([None, 1_700_000_000_000]))
    return bullmq.decode_job(draw(any_bytes), flat, "mail", draw(states), claimed_at)


def bullmq_options(draw: Callable[[Any], Any]) -> Any:
    opts = objects(
        "attempts", "delay", "priority", "backoff", "lifo", "jobId", "removeOnComplete", "removeOnFail",
        "kl", "de", "parent", "repeat", "timestamp", "stackTraceLimit", "sizeLimit", "fpof",
    )  # fmt: skip
    return bullmq.decode_job(b"1", [b"name", b"mail", b"opts", draw(opts)], "mail")


def bullmq_end(draw: Callable[[Any], Any]) -> Any:
    return bullmq.decode_end(draw(st.lists(st.none() | any_bytes, min_size=5, max_size=5)))


def bullmq_events(draw: Callable[[Any], Any]) -> Any:
    entries = [[draw(ENTRY), draw(BULLMQ_EVENT)] for _ in range(draw(st.integers(1, 3)))]
    return events_of(decode_columns(entries, draw(BULLMQ_EVENT), draw(BULLMQ_EVENT)), "bullmq", "mail")


def streams_job(draw: Callable[[Any], Any]) -> Any:
    return streams.decode_job(draw(STREAMS))


def streams_claim(draw: Callable[[Any], Any]) -> Any:
    words = [draw(any_bytes) for _ in range(5)]
    row = [draw(ENTRY), *words, draw(st.integers(0, 9)), draw(st.integers(1, 9))]
    return streams.decode_claim(row, "w1", 1_700_000_000_000).job


def streams_end(draw: Callable[[Any], Any]) -> Any:
    status = draw(st.sampled_from([b"done", b"error", b"canceled"]))
    return streams.decode_end([status, draw(st.none() | any_bytes), draw(st.none() | any_bytes)])


def streams_event(draw: Callable[[Any], Any]) -> Any:
    return decode_events([[draw(ENTRY), draw(STREAMS_EVENT)]], draw(st.sampled_from([None, "j1"])))


def bridgemq_job(draw: Callable[[Any], Any]) -> Any:
    part = st.none() | BRIDGEMQ
    record = bridgemq.JobRecord(
        raw=draw(part), status=draw(st.sampled_from(["", "waiting", "active", "completed", "dead", "?"])),
        result=draw(part), attempts=draw(st.none() | any_bytes), fence=draw(st.none() | any_bytes),
        failure=draw(hashes(b"reason", b"traces", b"at", b"worker", b"stalls", b"attempts")),
        progress=draw(part), summary=draw(part), holder=draw(st.none() | any_bytes),
    )  # fmt: skip
    return bridgemq.decode_job("j1", record)


def bridgemq_event(draw: Callable[[Any], Any]) -> Any:
    return decode_event(draw(ENTRY), draw(BRIDGEMQ_EVENT))


DECODERS = (
    bullmq_job,
    bullmq_options,
    bullmq_end,
    bullmq_events,
    streams_job,
    streams_claim,
    streams_end,
    streams_event,
    bridgemq_job,
    bridgemq_event,
)


def decode_anything(decode: Callable[[Callable[[Any], Any]], Any], examples: int) -> None:
    """Decode many inputs; what comes out can be shown: it has no value that JSON cannot represent."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        decoded = decode(data.draw)
        if isinstance(decoded, Job):
            assert isinstance(decoded.id, str)
            assert isinstance(decoded.options.attempts, int)
            repr(decoded)
        elif isinstance(decoded, list):
            assert all(isinstance(event, JobEvent) for event in decoded)

    check()


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
def test_any_bytes_are_decoded(decode: Callable[[Callable[[Any], Any]], Any]) -> None:
    decode_anything(decode, FEW)


@pytest.mark.faults
@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
def test_very_many_bytes_are_decoded(decode: Callable[[Callable[[Any], Any]], Any]) -> None:
    decode_anything(decode, scaled(MANY, least=FEW))
