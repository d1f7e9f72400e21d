"""Delay arithmetic: fixed, exponential, custom; cap and jitter."""

from collections.abc import Callable
from math import floor

from corral.core.job import Backoff, Job

CAP_MS = 3_600_000


def backoff_ms(
    backoff: Backoff, attempts_made: int, cap: int | None = CAP_MS, random: Callable[[], float] = lambda: 1.0
) -> int:
    """Milliseconds to wait after `attempts_made` failed attempts.

    >>> [backoff_ms(Backoff("exponential", 1000), n) for n in (1, 2, 11, 12, 13)]
    [1000, 2000, 1024000, 2048000, 3600000]
    """
    delay = backoff.delay
    if backoff.kind == "exponential":
        # 2^63 ms is past any calendar: a bound on the exponent keeps the integer small
        delay *= 2 ** min(max(attempts_made - 1, 0), 63)
    if cap is not None:
        delay = min(delay, cap)
    if backoff.jitter > 0:
        lowest = delay * (1 - backoff.jitter)
        delay = floor(random() * delay * backoff.jitter + lowest)
    return delay


def delay_before(
    job: Job,
    attempts_made: int,
    error: BaseException,
    rule: Callable[[int, str, BaseException, Job], int] | None,
    cap: int | None,
    random: Callable[[], float],
) -> int:
    """Milliseconds before the next attempt of `job`; negative where its own rule says "no more"."""
    backoff = job.options.backoff
    if backoff is None:
        return 0
    if backoff.kind in ("fixed", "exponential"):
        return backoff_ms(backoff, attempts_made, cap, random)
    if rule is None:
        return -1
    delay = rule(attempts_made, backoff.kind, error, job)
    return delay if delay < 0 or cap is None else min(delay, cap)
