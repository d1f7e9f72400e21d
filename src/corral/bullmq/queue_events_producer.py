"""QueueEventsProducer: custom events in a queue's event stream."""

from collections.abc import Mapping
from typing import Any

from corral.bullmq.queue_base import QueueBase


class QueueEventsProducer(QueueBase):
    """Writes events that every `QueueEvents` of the queue receives."""

    async def publishEvent(self, args: Mapping[str, Any], maxEvents: int = 1000) -> None:
        """Write the event `args["eventName"]` with the rest of `args` as fields; keep about `maxEvents`.

        >>> await producer.publishEvent({"eventName": "greeted", "who": "you"})      # doctest: +SKIP
        """
        if "eventName" not in args:
            raise ValueError("publishEvent requires an 'eventName' key")
        fields = [part for name, value in args.items() if name != "eventName" for part in (name, value)]
        await self.store.call(
            "XADD", self.toKey("events"), "MAXLEN", "~", maxEvents, "*", "event", args["eventName"], *fields
        )
