"""What a handler leaves behind, in the form a settlement carries."""

from traceback import format_exception
from types import TracebackType
from typing import Any

from corral.core.job import Job
from corral.core.outcome import AlreadyMoved, Completed, Dead, Outcome, Retry
from corral.core.payload import encode

NOTHING = Completed()
MOST_TRACE = 16_384


def completed(job: Job, value: Any) -> Outcome:
    """The outcome of a handler that returned `value`."""
    if value is None:
        return NOTHING
    try:
        return Completed(encode(value, "result"))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(value, AlreadyMoved):
            return value  # said by a handler that has moved its job itself
        return Dead(f"the result of {job.name!r} cannot be written down as JSON: {error}")


def weight(outcome: Outcome) -> int:
    """How many bytes, about, an outcome brings to its trip."""
    match outcome:
        case Completed(result=result):
            return len(result)
        case Dead(reason=reason, trace=trace) | Retry(reason=reason, trace=trace):
            return len(reason) + len(trace)
    return 0


def trace_of(error: BaseException) -> str:
    """The traceback as text from the handler on; only the end of one that is very long."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_ours(frames):
        frames = frames.tb_next
    text = "".join(format_exception(type(error), error, frames))
    return text if len(text) <= MOST_TRACE else "…" + text[-MOST_TRACE:]


def _is_ours(frames: TracebackType) -> bool:
    name: str = frames.tb_frame.f_globals.get("__name__", "")
    return name.startswith(("corral.worker.", "corral.bullmq.", "asyncio."))
