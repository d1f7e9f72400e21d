"""Ahead: the batch after this one is counted while this one is read."""

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from corral.errors import CorralError
from corral.spark.counting import Counting, Plan, Stopped
from corral.spark.offsets import Positions
from corral.spark.options import Reading, Where
from corral.spark.visit import Visit

log = logging.getLogger("corral.spark")


class Ahead:
    """One plan at a time, made in a thread with a connection of its own."""

    def __init__(self, where: Where, reading: Reading) -> None:
        self._where = where
        self._reading = reading
        self._threads: ThreadPoolExecutor | None = None
        self._stopping = threading.Event()
        self._asked: tuple[Positions, int] | None = None
        self._plan: Future[Plan | None] | None = None

    def begin(self, start: Positions, ends: Positions, most: int) -> None:
        """Plan the batch that begins at `start`; what was planned before is forgotten."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "corral-ahead")
        self._asked = (start, most)
        self._plan = self._threads.submit(self._count, start, ends, most)

    def take(self, start: Positions, most: int) -> Plan | None:
        """The plan of this batch, once; None where none was begun, or the server did not answer."""
        plan, self._plan = self._plan, None
        return plan.result() if plan is not None and self._asked == (start, most) else None

    def _count(self, start: Positions, ends: Positions, most: int) -> Plan | None:
        try:
            # no second try here: whoever needs the plan counts anew, and is patient
            with Visit(self._where, retry_s=0) as visit:
                return Counting(visit, self._reading, self._stopping.is_set).plan(start, ends, most)
        except (CorralError, Stopped) as error:
            log.debug("the next batch could not be counted ahead: %s", error)
            return None

    def close(self) -> None:
        """Stop counting."""
        self._stopping.set()
        if self._threads is not None:
            self._threads.shutdown()
