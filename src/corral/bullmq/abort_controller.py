"""Cancellation signals for processors that take one as their third argument."""

import asyncio


class AbortError(Exception):
    """Raised by a processor to end its job after a cancellation."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "The operation was aborted")
        self.reason = reason


class AbortSignal:
    """The cancellation of one job, to be polled or awaited by its processor.

    >>> AbortController().signal.aborted
    False
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._reason: str | None = None

    @property
    def aborted(self) -> bool:
        """Whether the job was cancelled."""
        return self._event.is_set()

    @property
    def reason(self) -> str | None:
        """The reason of the cancellation, if one was given."""
        return self._reason

    async def wait(self) -> None:
        """Wait until the job is cancelled."""
        await self._event.wait()

    def throw_if_aborted(self) -> None:
        """Raise `AbortError` if the job was cancelled."""
        if self._event.is_set():
            raise AbortError(self._reason)


class AbortController:
    """The sending side of an `AbortSignal`; the first reason counts."""

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: str | None = None) -> None:
        """Cancel the job."""
        if not self.signal.aborted:
            self.signal._reason = reason
            self.signal._event.set()
