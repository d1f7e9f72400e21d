"""Celery: one process with threads (setting: how many; 0 is its solo pool); it has no bulk add."""

import logging
import os
import threading

from celery import Celery
from driving import Handled, data, read_task, tell, timed_fill

task = read_task()
handled = Handled(task["count"], lambda: finish())
lock = threading.Lock()
app = Celery("bench", broker=task["url"])
app.conf.update(
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_prefetch_multiplier=64,
)


def finish() -> None:
    tell(handled.reading())
    os._exit(0)  # a warm shutdown takes seconds, which is not what is measured


@app.task(name="work")
def work(given: dict[str, object]) -> None:
    with lock:
        handled.one()


def fill(count: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(count):
            work.apply_async((data(number),), producer=producer)


if task["measure"] == "bulk_add":
    tell(timed_fill(task["count"], fill))
else:
    logging.disable(logging.CRITICAL)
    fill(task["count"])
    threads = task["setting"]
    worker = app.Worker(
        pool="threads" if threads else "solo",
        concurrency=threads or 1,
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
        loglevel="CRITICAL",
        quiet=True,
    )
    worker.start()
