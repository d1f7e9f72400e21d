"""huey: threads, without results; it has no bulk add."""

import logging
import os
import threading

from driving import Handled, data, order, tell, timed_fill
from huey import RedisHuey

asked = order()
everything = threading.Event()
handled = Handled(asked["count"], everything.set)
lock = threading.Lock()
huey = RedisHuey("bench", url=asked["url"], results=False)


@huey.task()
def work(given: dict[str, object]) -> None:
    with lock:
        handled.one()


def fill(count: int) -> None:
    for number in range(count):
        work(data(number))


if asked["measure"] == "bulk_add":
    tell(timed_fill(asked["count"], fill))
else:
    logging.disable(logging.CRITICAL)
    fill(asked["count"])
    consumer = huey.create_consumer(
        workers=asked["setting"],
        periodic=False,
        initial_delay=0.001,
        max_delay=0.001,
        check_worker_health=False,
    )
    consumer.start()
    everything.wait()
    tell(handled.reading())
    os._exit(0)  # its threads take seconds to stop, which is not what is measured
