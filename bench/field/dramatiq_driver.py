"""dramatiq: threads; it has no bulk add."""

import os
import threading

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from driving import Handled, data, order, tell, timed_fill

asked = order()
everything = threading.Event()
handled = Handled(asked["count"], everything.set)
lock = threading.Lock()
broker = RedisBroker(url=asked["url"])
dramatiq.set_broker(broker)


@dramatiq.actor
def work(given: dict[str, object]) -> None:
    with lock:
        handled.one()


def fill(count: int) -> None:
    for number in range(count):
        work.send(data(number))


if asked["measure"] == "bulk_add":
    tell(timed_fill(asked["count"], fill))
else:
    fill(asked["count"])
    worker = dramatiq.Worker(broker, worker_threads=asked["setting"])
    worker.start()
    everything.wait()
    tell(handled.reading())
    os._exit(0)  # its threads take seconds to stop, which is not what is measured
