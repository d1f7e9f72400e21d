"""Writing a history, one file for each process, and reading the files of all processes as one history."""

import base64
import gc
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from tests.faults.checker.records import (
    FORMAT,
    UNSTAMPED,
    AnyRecord,
    Invoke,
    NewJob,
    Ok,
    Process,
    Record,
    Refused,
    Unknown,
    Verb,
)

R = TypeVar("R", bound=Record)

_names = itertools.count()


class HistoryError(Exception):
    """A file is not a history, or a part of the history is missing."""


def wall_clock_ms() -> float:
    """Return the time in milliseconds since 1970, with a fraction."""
    return time.time_ns() / 1e6


def encode_value(value: bytes) -> str:
    """Return the bytes of a result as the string that stands in a record."""
    return base64.b64encode(value).decode()


class Writer:
    """Appends records to a file, each with one `write` call; for one process and any number of threads.

    A process that is killed leaves at most one incomplete line, its last.
    """

    def __init__(
        self, path: Path, role: str, process: str | None = None, clock: Callable[[], float] = wall_clock_ms
    ) -> None:
        host, self._pid = socket.gethostname(), os.getpid()
        self.process = process or f"{role}-{host}-{self._pid}-{next(_names)}-{time.time_ns():x}"
        self.path = path
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._lock = threading.Lock()
        self._seq = 0
        self._last = 0.0
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")
        self.write(Process(role=role, format=FORMAT, pid=self._pid, host=host))

    @classmethod
    def in_folder(cls, folder: Path, role: str) -> "Writer":
        """Open a new file in the folder; its name is unique."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder / f"{role}-{os.getpid()}-{next(_names)}-{time.time_ns():x}.jsonl", role)

    def write(self, record: R) -> R:
        """Append the record with time, process and number, and return it so; a time that is set stays."""
        with self._lock:
            if os.getpid() != self._pid:
                raise HistoryError(
                    f"{self.path} was opened by process {self._pid}; open a Writer after the fork"
                )
            at = self._clock() if record.at == UNSTAMPED else record.at
            at = self._last = max(at, self._last)
            stamped = msgspec.structs.replace(record, at=at, process=self.process, seq=self._seq)
            line = self._encoder.encode(stamped) + b"\n"
            if os.write(self._file, line) != len(line):
                raise HistoryError(f"{self.path} took only a part of a record; is the disk full?")
            self._seq += 1
        return stamped

    def invoke(self, verb: Verb, queue: str, *, jobs: Iterable[NewJob] = (), ids: Iterable[str] = ()) -> str:
        """Record a request that is about to be sent; return the value for `ok`, `refused` or `unknown`."""
        op = f"{self.process}#{next(_names)}"
        self.write(Invoke(op=op, verb=verb, queue=queue, jobs=tuple(jobs), ids=tuple(ids)))
        return op

    def ok(self, op: str, ids: Sequence[str | None] | None = None, existed: Iterable[int] = ()) -> None:
        """Record that the request was carried out."""
        self.write(Ok(op=op, ids=None if ids is None else tuple(ids), existed=tuple(existed)))

    def refused(self, op: str, reason: str) -> None:
        """Record that the request was refused."""
        self.write(Refused(op=op, reason=reason))

    def unknown(self, op: str, reason: str) -> None:
        """Record that the answer was lost."""
        self.write(Unknown(op=op, reason=reason))

    def close(self) -> None:
        """Close the file; the history needs no last word."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class History:
    """The records of all processes, by time."""

    records: Sequence[AnyRecord]
    torn: int = 0
    """Incomplete last lines, of processes that were killed while they wrote."""
    files: int = 0


def read(paths: Iterable[Path]) -> History:
    """Read files, and folders of `*.jsonl` files, as one history.

    Records of one process keep their order; records of several are merged by time.
    """
    records: list[AnyRecord] = []
    numbers: dict[str, tuple[int, float]] = {}
    torn = files = 0
    with without_garbage_collection():
        for path in _files(paths):
            files += 1
            torn += _read_file(path, records, numbers)
        records.sort(key=attrgetter("at"))
    return History(records, torn, files)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.jsonl"))
            if not inside:
                raise HistoryError(f"folder {path} has no *.jsonl file")
            yield from inside
        else:
            yield path


def _read_file(path: Path, records: list[AnyRecord], numbers: dict[str, tuple[int, float]]) -> int:
    """Append the file's records; return how many lines are incomplete."""
    decode = msgspec.json.Decoder(AnyRecord).decode
    torn, incomplete = 0, 0
    try:
        file = path.open("rb")
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error}") from None
    with file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                record = decode(line)
            except msgspec.ValidationError as error:
                raise HistoryError(f"{path}:{number}: {error}") from None
            except (msgspec.DecodeError, UnicodeDecodeError):
                if incomplete:
                    raise HistoryError(f"{path}:{incomplete}: this line is not JSON") from None
                incomplete = number
                continue
            if incomplete:
                if record.seq != 0:  # the process that wrote the incomplete line must have ended there
                    raise HistoryError(f"{path}:{incomplete}: this line is not JSON")
                torn, incomplete = torn + 1, 0
            expected, last = numbers.get(record.process, (0, 0.0))
            if not record.process or record.at < last or record.seq != expected:
                raise HistoryError(f"{path}:{number}: {_disorder(record, expected, last)}")
            numbers[record.process] = (expected + 1, record.at)
            records.append(record)
    return torn + bool(incomplete)


def _disorder(record: AnyRecord, expected: int, last: float) -> str:
    if not record.process:
        return "the record has no `process`"
    if record.seq != expected:
        return (
            f"`seq` is {record.seq} where process {record.process} should have {expected}; are lines missing?"
        )
    return f"`at` is {record.at}, earlier than {last} in the record before of process {record.process}"


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause the collector: millions of small objects without a cycle only cost it time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
