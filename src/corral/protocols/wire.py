"""Bytes to and from scripts: packed rows, fields of hashes, texts and numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgpack

pack = msgpack.Packer(use_bin_type=False, autoreset=True).pack
"""Pack rows for a script."""


BROKEN = "_broken"
"""The key under which readers show the fields of a job or an event that cannot be read."""
MOST_COUNT = 2**31 - 1
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, behind which readers have no calendar."""


def fields_of(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of a hash or an entry, which the server sends as a flat list."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def text(raw: bytes) -> str:
    """Return bytes as text; what is no UTF-8 is replaced."""
    return raw.decode("utf-8", "replace")


def clean(words: str) -> str:
    """Return text that UTF-8 can represent: half a surrogate pair is replaced."""
    return words.encode("utf-8", "replace").decode()


def whole(raw: Any) -> int:
    """Return a whole number of 64 bits, 0 where a foreign client wrote something else."""
    if raw is None:  # as most are: an exception for each would cost more than the rest of the job
        return 0
    return within(raw, -(2**63), 2**63 - 1) or 0


def count(raw: Any) -> int:
    """Return how often something happened, 0 where a foreign client wrote something else."""
    return 0 if raw is None else within(raw, 0, MOST_COUNT) or 0


def time_ms(raw: Any) -> int:
    """Return a time in milliseconds, 0 where a foreign client wrote something else."""
    return 0 if raw is None else within(raw, 0, LATEST_MS) or 0


def entry_time(entry_id: bytes) -> int:
    """Return the time in an entry's id; a foreign client may have chosen any."""
    return min(int(entry_id.partition(b"-")[0]), LATEST_MS)


def entry_order(entry_id: bytes) -> tuple[int, int]:
    """Return an entry's id as numbers, which can be compared."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds), int(sequence)


def broken_fields(
    fields: Mapping[bytes, bytes], counts: Iterable[bytes] = (), times: Iterable[bytes] = ()
) -> dict[str, str]:
    """Return those of these fields that have a value, but no count or time; readers show them so."""
    limits = [(name, MOST_COUNT) for name in counts] + [(name, LATEST_MS) for name in times]
    return {
        text(name): text(fields[name])[:80]
        for name, most in limits
        if fields.get(name) and within(fields[name], 0, most) is None
    }


def within(raw: Any, least: int, most: int) -> int | None:
    """Return a whole number in these limits; None where it is something else."""
    try:
        number = int(raw)
    except (TypeError, ValueError, OverflowError):
        try:
            number = int(float(raw))
        except (TypeError, ValueError, OverflowError):
            return None
    return number if least <= number <= most else None


def id_text(raw: bytes) -> str:
    """Return an id as text that `id_bytes` turns back into the same bytes, whatever they are."""
    return raw.decode("utf-8", "surrogateescape")


def id_bytes(job_id: str) -> bytes:
    """Return the bytes of an id that `id_text` read."""
    return job_id.encode("utf-8", "surrogateescape")
