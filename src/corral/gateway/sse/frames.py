"""Server-sent events as bytes, and the buffer in which they wait to be sent to one client."""

import asyncio
from typing import Any

import orjson
from starlette.types import Receive

from corral.core.http_api import TailEvent

HEARTBEAT = b": heartbeat\n\n"

_ONE_LINE = dict.fromkeys((*range(32), 127), " ")


def job_frame(event: TailEvent) -> bytes:
    """Return the frame of a job's event."""
    # ids and types come from other programs: a line break in them must not start another event
    event_id, kind = event.id.translate(_ONE_LINE), event.kind.translate(_ONE_LINE)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event_id.encode(), kind.encode(), event.data)


def gateway_frame(name: str, retry_ms: int | None = None, **data: Any) -> bytes:
    """Return the frame of the gateway's own event; it has no id, so the position to resume from stays.

    >>> gateway_frame("gateway.expired", reason="gone")
    b'event: gateway.expired\\ndata: {"reason":"gone"}\\n\\n'
    """
    retry = b"" if retry_ms is None else b"retry: %d\n" % retry_ms
    return b"%sevent: %s\ndata: %s\n\n" % (retry, name.encode(), orjson.dumps(data))


class SendBuffer:
    """The frames that wait to be sent to one client, and whether more will follow."""

    __slots__ = ("_frames", "_max_bytes", "_size", "changed", "has_ended", "taken_at")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._frames: list[bytes] = []
        self._size = 0
        self.has_ended = False
        self.taken_at = asyncio.get_running_loop().time()
        self.changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be read for it: it has reached its size or has ended."""
        # the other half is for what is being read
        return self.has_ended or self._size >= self._max_bytes // 2

    def push(self, frame: bytes) -> None:
        """Add a frame."""
        self._frames.append(frame)
        self._size += len(frame)
        self.changed.set()

    def end(self, frame: bytes = b"") -> None:
        """Add the last frame."""
        if not self.has_ended:
            self.has_ended = True
            self.push(frame)

    def take(self) -> bytes:
        """Remove and return all frames."""
        self.changed.clear()
        self.taken_at = asyncio.get_running_loop().time()
        frames = b"".join(self._frames)
        self._frames.clear()
        self._size = 0
        return frames


async def end_on_disconnect(receive: Receive, buffer: SendBuffer) -> None:
    """End a buffer when its client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    buffer.end()
