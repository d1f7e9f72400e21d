"""Delay arithmetic: fixed, exponential, custom; cap and jitter."""

from collections.abc import Callable
from math import floor

from corral.core.job import Backoff, Job

CAP_MS = 3_600_000
LONGEST_MS = 2**53 - 1
"""Where no cap holds: the longest that every peer reads exactly."""

BackoffRule = Callable[[int, str, BaseException, Job], int]
"""(attempts made, backoff kind, error, job) -> ms, or -1 for "no more attempts"."""


def backoff_ms(
    backoff: Backoff, attempts_made: int, cap: int | None = CAP_MS, random: Callable[[], float] = lambda: 1.0
) -> int:
    """Milliseconds to wait after `attempts_made` failed attempts.

    The cap bounds what grows: a fixed delay is kept as it was asked for. Jitter takes away at most
    its share of the delay, by the formula of BullMQ 5.62.0.

    >>> [backoff_ms(Backoff("exponential", 1000), n) for n in (1, 2, 11, 12, 13)]
    [1000, 2000, 1024000, 2048000, 3600000]
    """
    delay = backoff.delay
    if backoff.kind == "exponential":
        # 2^53 is past any calendar: a bound on the exponent keeps the integer small
        delay = min(delay * 2 ** min(max(attempts_made - 1, 0), 53), LONGEST_MS if cap is None else cap)
    if backoff.jitter > 0:
        lowest = delay * (1 - backoff.jitter)
        delay = floor(random() * delay * backoff.jitter + lowest)
    return delay


def delay_before(
    job: Job,
    attempts_made: int,
    error: BaseException,
    rule: BackoffRule | None,
    cap: int | None,
    random: Callable[[], float],
) -> int:
    """Milliseconds before the next attempt of `job`; negative where the worker's own rule says "no more".

    A rule of one's own may grow as an exponent does, so the cap holds for it too.
    """
    backoff = job.options.backoff
    if backoff is None:
        return 0
    if backoff.kind in ("fixed", "exponential"):
        return backoff_ms(backoff, attempts_made, cap, random)
    if rule is None:
        raise LookupError(f"backoff {backoff.kind!r} needs a rule, and this worker has none")
    delay = int(rule(attempts_made, backoff.kind, error, job))
    return min(delay, LONGEST_MS if cap is None else cap)
