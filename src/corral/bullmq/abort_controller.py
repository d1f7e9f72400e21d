"""The news that a job should end, for processors that take it as their third argument."""

import asyncio


class AbortError(Exception):
    """A processor may raise this to end its job as it was asked to."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "The operation was aborted")
        self.reason = reason


class AbortSignal:
    """Should this job end? The processor looks, or waits.

    >>> AbortController().signal.aborted
    False
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._reason: str | None = None

    @property
    def aborted(self) -> bool:
        """Has someone asked for the end?"""
        return self._event.is_set()

    @property
    def reason(self) -> str | None:
        """Why, if it was said."""
        return self._reason

    async def wait(self) -> None:
        """Return when someone asks for the end."""
        await self._event.wait()

    def throw_if_aborted(self) -> None:
        """Raise `AbortError` where someone has asked for the end."""
        if self._event.is_set():
            raise AbortError(self._reason)


class AbortController:
    """Who holds this can ask for the end; the first reason counts."""

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: str | None = None) -> None:
        """Ask for the end."""
        if not self.signal.aborted:
            self.signal._reason = reason
            self.signal._event.set()
