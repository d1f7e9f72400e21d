"""Many jobs at once: one that is refused is named by its place among them, and many are read when needed."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

from corral.errors import Refused

Given = TypeVar("Given")
Row = TypeVar("Row")
Read = TypeVar("Read", covariant=True)


def encode_all(jobs: Sequence[Given], encode: Callable[[Given], Row]) -> list[Row]:
    """What `encode` makes of each job; where it refuses one, the error tells its `position`."""
    try:
        return [encode(job) for job in jobs]
    except Refused:
        # which one it was is looked for only now: the usual batch should not pay for counting
        for position, job in enumerate(jobs):
            try:
                encode(job)
            except Refused as error:
                error.position = position
                raise error from None
        raise


def refused_at(position: int, error: Refused) -> Refused:
    """The same refusal, for whoever gave many jobs and must know which one is meant."""
    told = type(error)(f"job {position} of this call: {error}")
    told.position = position
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told


class Unread(Sequence[Read]):
    """So many things, read when they are first looked at: reading can wait, sending cannot.

    >>> digits = Unread(2, lambda: [1, 2])
    >>> len(digits), list(digits)
    (2, [1, 2])
    """

    def __init__(self, count: int, read: Callable[[], Sequence[Read]]) -> None:
        self._count = count
        self._read = read
        self._items: Sequence[Read] | None = None

    def _all(self) -> Sequence[Read]:
        if self._items is None:
            self._items = self._read()
        return self._items

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Read]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> Read: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Read]: ...
    def __getitem__(self, index: int | slice) -> Read | Sequence[Read]:
        return self._all()[index]
