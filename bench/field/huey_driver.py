"""huey: threads, without results; it has no bulk add."""

import logging
import os
import threading

from driving import Handled, data, read_task, tell, timed_fill
from huey import RedisHuey

task = read_task()
everything = threading.Event()
handled = Handled(task["count"], everything.set)
lock = threading.Lock()
huey = RedisHuey("bench", url=task["url"], results=False)


@huey.task()
def work(given: dict[str, object]) -> None:
    with lock:
        handled.one()


def fill(count: int) -> None:
    for number in range(count):
        work(data(number))


if task["measure"] == "bulk_add":
    tell(timed_fill(task["count"], fill))
else:
    logging.disable(logging.CRITICAL)
    fill(task["count"])
    consumer = huey.create_consumer(
        workers=task["setting"],
        periodic=False,
        initial_delay=0.001,
        max_delay=0.001,
        check_worker_health=False,
    )
    consumer.start()
    everything.wait()
    tell(handled.reading())
    os._exit(0)  # its threads take seconds to stop, which is not what is measured
