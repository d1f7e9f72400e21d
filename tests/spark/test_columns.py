"""Events as columns say what events one by one say."""

import orjson
import pytest

from corral.core.event import EventColumns, columns_of
from corral.protocols.bullmq import codec
from corral.protocols.bullmq.events import decode_columns

ADDED = [b"event", b"added", b"jobId", b"7", b"name", b"send"]
ENTRIES = {
    "added": ADDED,
    "waiting": [b"event", b"waiting", b"jobId", b"7"],
    "retried at once": [b"event", b"waiting", b"jobId", b"7", b"prev", b"active"],
    "delayed": [b"event", b"delayed", b"jobId", b"7", b"delay", b"1700000000000"],
    "active": [b"event", b"active", b"jobId", b"7", b"prev", b"waiting"],
    "completed": [
        *(b"event", b"completed", b"jobId", b"7", b"returnvalue", b'{"n":130775545883395173}'),
        *(b"prev", b"active"),
    ],
    "failed": [b"event", b"failed", b"jobId", b"7", b"failedReason", b'says "no"', b"prev", b"active"],
    "exhausted": [b"event", b"retries-exhausted", b"jobId", b"7", b"attemptsMade", b"3"],
    "progress": [b"event", b"progress", b"jobId", b"7", b"data", b"half"],
    "drained": [b"event", b"drained"],
    "cleaned": [b"event", b"cleaned", b"count", b"12"],
    "in another order": [b"jobId", b"7", b"prev", b"active", b"event", b"completed"],
    "with a field twice": [b"event", b"added", b"jobId", b"7", b"jobId", b"8", b"x", b"1", b"x", b"2"],
    "without a kind": [b"jobId", b"7"],
    "empty": [],
}


def rows_of(columns: EventColumns) -> list[list[object]]:
    texts = [columns.ids, columns.kinds, columns.job_ids, columns.names, columns.previous]
    plain = [[value.decode() if isinstance(value, bytes) else value for value in column] for column in texts]
    data = [None if value is None else orjson.loads(value) for value in columns.data]
    return [*plain, columns.at, columns.attempts, columns.workers, data]


@pytest.mark.parametrize("before", [[], ADDED], ids=["first", "behind an added one"])
@pytest.mark.parametrize("flat", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_says_the_same_in_bulk_and_alone(flat: list[bytes], before: list[bytes]):
    entries = [(b"1700000000000-0", flat), (b"1700000000001-18446744073709551615", flat)]
    alone = columns_of(codec.decode_events(entries, "bullmq", "mail", before))
    assert rows_of(decode_columns(entries, before)) == rows_of(alone)


def test_entries_of_ever_new_shapes_are_read():
    entries = [(b"1-%d" % n, [b"event", b"odd", b"field-%d" % n, b"%d" % n]) for n in range(3000)]
    assert [orjson.loads(data) for data in decode_columns(entries).data] == [
        {f"field-{n}": str(n)} for n in range(3000)
    ]
