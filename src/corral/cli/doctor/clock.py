"""Is the server's clock ours?"""

import time

from corral.cli.doctor.findings import Finding, fine, note, unseen, wrong
from corral.errors import RedisResponseError
from corral.store.client import Store

NOTED_MS = 250
APART_MS = 1000
TRIES = 5
"""The quickest of so many answers tells most."""

Reading = tuple[float, float, float]
"""Our time when the server was asked, its own time, and ours when it had answered; seconds."""


async def check_clock(store: Store) -> Finding:
    """The server's clock against ours."""
    try:
        return judge_clock([await _read(store) for _ in range(TRIES)])
    except RedisResponseError as error:
        return unseen("TIME", error, "+time")


async def _read(store: Store) -> Reading:
    asked = time.time()
    seconds, micros = await store.call("TIME")
    return asked, int(seconds) + int(micros) / 1e6, time.time()


def judge_clock(readings: list[Reading]) -> Finding:
    """What these readings say; half of the way there and back is the doubt, and is held against nobody.

    >>> judge_clock([(100.0, 107.5, 100.0)]).level.value, judge_clock([(100.0, 100.3, 100.8)]).level.value
    ('mend', 'fine')
    """
    asked, theirs, answered = min(readings, key=lambda reading: reading[2] - reading[0])
    trip = (answered - asked) * 1000
    offset = (theirs - (asked + answered) / 2) * 1000
    surely = abs(offset) - trip / 2
    told = f"the server's clock is {offset:+.1f} ms from ours, an answer takes {trip:.1f} ms"
    mend = "keep both clocks by NTP (chrony, systemd-timesyncd)"
    if surely > APART_MS:
        return wrong("clock", f"{told}: delays, schedules and rates are off by as much", mend)
    if surely > NOTED_MS:
        return note("clock", told, mend)
    return fine("clock", told)
