"""Events as columns."""

import orjson

from corral.protocols.bullmq.events import decode_columns


def test_entries_of_ever_new_shapes_are_read():
    entries = [(b"1-%d" % n, [b"event", b"odd", b"field-%d" % n, b"%d" % n]) for n in range(3000)]
    assert [orjson.loads(data) for data in decode_columns(entries).data] == [
        {f"field-{n}": str(n)} for n in range(3000)
    ]
