"""Bytes to and from scripts: packed rows, fields of hashes, texts and numbers."""

from collections.abc import Sequence
from typing import Any

import msgpack

pack = msgpack.Packer(use_bin_type=False, autoreset=True).pack
"""Pack rows for a script."""


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
    """Return a whole number, 0 where a foreign client wrote something else."""
    if type(raw) is int:
        return raw
    if raw is None:  # as most are: an exception for each would cost more than the rest of the job
        return 0
    try:
        return int(raw)
    except (TypeError, ValueError, OverflowError):
        return 0


def id_text(raw: bytes) -> str:
    """Return an id as text that `id_bytes` turns back into the same bytes, whatever they are."""
    return raw.decode("utf-8", "surrogateescape")


def id_bytes(job_id: str) -> bytes:
    """Return the bytes of an id that `id_text` read."""
    return job_id.encode("utf-8", "surrogateescape")
