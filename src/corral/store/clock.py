"""ServerClock: this machine's time, corrected where it is not the server's."""

from collections.abc import Callable
from time import monotonic

MOST_OFF_MS = 1000
"""Clocks that are no further apart count as equal."""
LONGEST_REPLY_MS = 500
"""A reply that took longer says too little about the server's time."""
COMPARE_EVERY_S = 60.0


class ServerClock:
    """The milliseconds since the epoch: by the server where this machine's clock is more than a second off.

    Due times written by one machine are compared by another, so all of them must follow one clock. Calls
    `warn` with how many ms the machine's clock is ahead, once.

    >>> clock = ServerClock(lambda: 700_000, print)
    >>> clock.compare(100_000, sent_at=700_000)
    600000
    >>> clock()
    100000
    """

    def __init__(self, clock: Callable[[], int], warn: Callable[[int], None]) -> None:
        self.local = clock
        self._warn = warn
        self._offset_ms = 0
        self._compared_at: float | None = None
        self._has_warned = False

    def __call__(self) -> int:
        return self.local() + self._offset_ms

    @property
    def is_outdated(self) -> bool:
        """Whether it should be compared with the server's clock."""
        return self._compared_at is None or monotonic() - self._compared_at > COMPARE_EVERY_S

    def compare(self, server_ms: int | None, sent_at: int) -> None:
        """Take the server's time from a reply to what was sent at `sent_at`, by this machine's clock.

        `server_ms` is None where the server does not say it.
        """
        self._compared_at = monotonic()
        took = self.local() - sent_at
        if server_ms is None or not 0 <= took <= LONGEST_REPLY_MS:
            return
        offset = server_ms - sent_at - took // 2
        self._offset_ms = offset if abs(offset) > MOST_OFF_MS else 0
        if self._offset_ms and not self._has_warned:
            self._has_warned = True
            self._warn(-offset)
