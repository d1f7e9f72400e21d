"""Server-sent events as bytes: a job's own, and the gateway's, which begin with `gateway.`."""

from typing import Any

import orjson

from corral.core.http_api import TailEvent

HEARTBEAT = b": heartbeat\n\n"

_ONE_LINE = dict.fromkeys((*range(32), 127), " ")


def of_event(event: TailEvent) -> bytes:
    """An event of a job."""
    # a stranger's words may hold line breaks, and must not make events of their own
    event_id, kind = event.id.translate(_ONE_LINE), event.kind.translate(_ONE_LINE)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event_id.encode(), kind.encode(), event.data)


def own(name: str, retry_ms: int | None = None, **data: Any) -> bytes:
    """An event of the gateway's own. It has no id, so where to resume stays with the job's events.

    >>> own("gateway.away", reason="…")
    b'event: gateway.away\\ndata: {"reason":"\\xe2\\x80\\xa6"}\\n\\n'
    """
    retry = b"" if retry_ms is None else b"retry: %d\n" % retry_ms
    return b"%sevent: %s\ndata: %s\n\n" % (retry, name.encode(), orjson.dumps(data))
