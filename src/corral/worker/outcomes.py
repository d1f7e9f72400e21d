"""Outcomes of handlers: results as JSON, tracebacks as text."""

from traceback import format_exception
from types import TracebackType
from typing import Any

from corral.core.job import Job
from corral.core.outcome import AlreadyMoved, Completed, Dead, Outcome, Retry
from corral.core.payload import encode

NO_RESULT = Completed()
MOST_TRACE = 16_384


def completed(job: Job, value: Any) -> Outcome:
    """Return the outcome of a handler that returned `value`."""
    if value is None:
        return NO_RESULT
    try:
        return Completed(encode(value, "result"))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(value, AlreadyMoved):
            return value  # the handler has settled the job itself
        return Dead(f"the result of {job.name!r} cannot be written as JSON: {error}")


def size_of(outcome: Outcome) -> int:
    """Return about how many bytes an outcome adds to its trip."""
    match outcome:
        case Completed(result=result):
            return len(result)
        case Dead(reason=reason, trace=trace) | Retry(reason=reason, trace=trace):
            return len(reason) + len(trace)
    return 0


def trace_of(error: BaseException) -> str:
    """Return the traceback as text, from the handler on; of a very long one, the end."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_internal(frames):
        frames = frames.tb_next
    text = "".join(format_exception(type(error), error, frames))
    return text if len(text) <= MOST_TRACE else "…" + text[-MOST_TRACE:]


def _is_internal(frames: TracebackType) -> bool:
    name: str = frames.tb_frame.f_globals.get("__name__", "")
    return name.startswith(("corral.worker.", "corral.bullmq.", "asyncio."))
