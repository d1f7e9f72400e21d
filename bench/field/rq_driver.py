"""RQ: its worker without a fork for each job, which is its fastest; bulk add by `enqueue_many`."""

import logging
import sys

from driving import Handled, batches, data, read_task, tell, timed_fill
from redis import Redis
from rq import Queue, SimpleWorker
from rq.queue import EnqueueData

sys.modules["rq_driver"] = sys.modules["__main__"]  # the worker looks the function up by its module's name
task = read_task()
handled = Handled(task["count"], lambda: None)
connection = Redis.from_url(task["url"])
queue = Queue(connection=connection)


def work(given: dict[str, object]) -> None:
    handled.one()


def job(number: int) -> EnqueueData:
    # keeping results and watching over a time limit cost it time, and nobody here asks for them
    return Queue.prepare_data("rq_driver.work", (data(number),), result_ttl=0, timeout=-1)


def fill(count: int) -> None:
    for numbers in batches(count):
        queue.enqueue_many([job(number) for number in numbers])


if task["measure"] == "bulk_add":
    tell(timed_fill(task["count"], fill))
else:
    fill(task["count"])
    logging.disable(logging.CRITICAL)
    SimpleWorker([queue], connection=connection).work(burst=True, logging_level="CRITICAL")
    tell(handled.reading())
