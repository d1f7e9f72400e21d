"""Handlers that a spawned process can import."""

import os
import threading
from dataclasses import dataclass
from typing import Any

from corral import Transient
from tests.support.polling import block, eventually


def where_it_runs(job: Any) -> dict[str, Any]:
    """The process that runs this, and what it was given."""
    return {"pid": os.getpid(), "thread": threading.current_thread().name, "data": job.data}


def tell_everything(job: Any) -> int:
    """Speaks every word a handler has."""
    job.progress(25, "half a scene")
    job.emit("scene", {"number": 1})
    lines: int = job.log("first line")
    return lines


def fail_once(job: Any) -> str:
    """Succeeds at the second attempt."""
    if job.attempt == 1:
        raise Transient("not yet")
    return "at last"


def until_cancelled(job: Any) -> str:
    """End when the job's cancellation is requested."""
    return "cancelled" if eventually(lambda: job.cancelled, 20) else "never told"


def sleep_long(job: Any) -> None:
    """Outlast every timeout."""
    block(60)


@dataclass
class ProcessOrder:
    """An argument of a handler that runs in a process."""

    id: int


@dataclass
class Description:
    """A result of one."""

    text: str


def describe_order(order: ProcessOrder, times: int = 1) -> Description:
    return Description(", ".join([f"order {order.id}"] * times))


class Unknown(Exception):
    """An error that no table knows."""


def raise_unknown(job: Any) -> None:
    raise Unknown("in a process")
