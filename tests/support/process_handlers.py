"""Handlers for tests that run them in spawned processes, which find them by this module's name."""

import asyncio
import functools
import os
import signal
from pathlib import Path

from corral.errors import JobCancelled, Postpone, Transient, Unrecoverable
from tests.support.polling import block


def add(job):
    return job.data["a"] + job.data["b"]


def pid(job):
    return os.getpid()


async def talk_async(job):
    await job.progress(25, "half a scene")
    await asyncio.sleep(0)
    return [await job.log("one"), await job.log("two"), job.attempt, job.name, job.queue]


def talk(job):
    job.progress(50)
    return [job.log("one"), job.attempt]


def overdo(job):
    job.progress(101)


def die_once(job):
    """Killed by the system, the first time."""
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return job.attempt


def leave(job):
    os._exit(7)


def fail(job):
    match job.data:
        case "transient":
            raise Transient("once more")
        case "unrecoverable":
            raise Unrecoverable("never")
        case "postpone" if job.job.starts < 2:
            raise Postpone(10)
        case "own":
            raise OwnError(503, "busy")
        case "value":
            raise ValueError("bad data")
        case "exit":
            raise SystemExit(3)
        case "result":
            return object()
    return "fine"


class OwnError(Exception):
    """An error with a constructor that no text can call."""

    def __init__(self, status, text):
        self.status = status
        super().__init__(f"{status} {text}")


def sleep(job):
    block(job.data if isinstance(job.data, int | float) else 30)


def hang_or_double(job):
    """Hang where the data is 0."""
    if job.data == 0:
        block(60)
    return job.data * 2


def write_pid_and_sleep(job):
    Path(job.data).write_text(str(os.getpid()))
    block(60)


def wait_for_cancel(job):
    if job.wait_cancelled(20):
        raise JobCancelled


async def wait_for_cancel_async(job):
    await job.wait_cancelled()
    raise JobCancelled


def cancel_on_stop(job):
    """End as cancelled when the worker stops, though nobody cancelled the job."""
    Path(job.data).touch()
    if job.wait_stopping(20) and job.stopping and not job.cancelled:
        raise JobCancelled


async def cancel_on_stop_async(job):
    Path(job.data).touch()
    await job.wait_stopping()
    if job.stopping and not job.cancelled:
        raise JobCancelled


LINES = 40
"""How many lines a narrator logs."""


def narrate(job):
    """Report in every way for about a second, or as long as an outage takes."""
    for number in range(LINES):
        job.log(f"line {number}")
        job.progress(number)
        job.emit(f"step-{number}")
        block(0.02)


async def narrate_async(job):
    for number in range(LINES):
        await job.log(f"line {number}")
        await job.progress(number)
        await job.emit(f"step-{number}")
        await asyncio.sleep(0.02)


def wrapping(fn):
    @functools.wraps(fn)
    def wrapper(job):
        raise AssertionError("the child must call the function inside")

    return wrapper


@wrapping
def wrapped(job):
    return "inside"
