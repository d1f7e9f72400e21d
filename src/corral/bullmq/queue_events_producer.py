"""QueueEventsProducer: events of one's own in a queue's stream."""

from collections.abc import Mapping
from typing import Any

from corral.bullmq.queue_base import QueueBase


class QueueEventsProducer(QueueBase):
    """Writes events that every `QueueEvents` of the queue hears."""

    async def publishEvent(self, args: Mapping[str, Any], maxEvents: int = 1000) -> None:
        """Write one event, `args["eventName"]`; the rest of `args` are its fields. Keeps about `maxEvents`.

        >>> await producer.publishEvent({"eventName": "greeted", "who": "you"})      # doctest: +SKIP
        """
        if "eventName" not in args:
            raise ValueError("publishEvent requires an 'eventName' key")
        fields = [word for name, value in args.items() if name != "eventName" for word in (name, value)]
        await self.store.call(
            "XADD", self.toKey("events"), "MAXLEN", "~", maxEvents, "*", "event", args["eventName"], *fields
        )
