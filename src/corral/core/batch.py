"""Lists of jobs: encoding all, where a refusal has its position; and reading when first used."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

from corral.errors import Refused

Item = TypeVar("Item")
Row = TypeVar("Row")
ItemCo = TypeVar("ItemCo", covariant=True)


def encode_all(jobs: Sequence[Item], encode: Callable[[Item], Row]) -> list[Row]:
    """Return what `encode` makes of each job; where it refuses one, the error has its `position`."""
    try:
        return [encode(job) for job in jobs]
    except Refused:
        # its position is found only now: the usual batch should not pay for counting
        for position, job in enumerate(jobs):
            try:
                encode(job)
            except Refused as error:
                error.position = position
                raise error from None
        raise


def refused_at(position: int, error: Refused) -> Refused:
    """Return the same refusal with the position of its job in the message."""
    located = type(error)(f"job {position} of this call: {error}")
    located.position = position
    for note in getattr(error, "__notes__", ()):
        located.add_note(note)
    return located


class LazySequence(Sequence[ItemCo]):
    """A sequence of known length whose items are read when first used.

    >>> digits = LazySequence(2, lambda: [1, 2])
    >>> len(digits), list(digits)
    (2, [1, 2])
    """

    def __init__(self, count: int, read: Callable[[], Sequence[ItemCo]]) -> None:
        self._count = count
        self._read = read
        self._items: Sequence[ItemCo] | None = None

    def _all(self) -> Sequence[ItemCo]:
        if self._items is None:
            self._items = self._read()
        return self._items

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ItemCo]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> ItemCo: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ItemCo]: ...
    def __getitem__(self, index: int | slice) -> ItemCo | Sequence[ItemCo]:
        return self._all()[index]
