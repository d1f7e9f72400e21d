"""dramatiq: threads; it has no bulk add."""

import os
import threading

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from driving import Handled, data, read_task, tell, timed_fill

task = read_task()
everything = threading.Event()
handled = Handled(task["count"], everything.set)
lock = threading.Lock()
broker = RedisBroker(url=task["url"])
dramatiq.set_broker(broker)


@dramatiq.actor
def work(given: dict[str, object]) -> None:
    with lock:
        handled.one()


def fill(count: int) -> None:
    for number in range(count):
        work.send(data(number))


if task["measure"] == "bulk_add":
    tell(timed_fill(task["count"], fill))
else:
    fill(task["count"])
    worker = dramatiq.Worker(broker, worker_threads=task["setting"])
    worker.start()
    everything.wait()
    tell(handled.reading())
    os._exit(0)  # its threads take seconds to stop, which is not what is measured
