"""Activity: what happens in all queues, summed up a few times a second, and by the minute for an hour."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from itertools import islice
from time import monotonic
from typing import Any

from corral.app import Corral
from corral.core.event import EventColumns, EventKind
from corral.core.http_api import TailBatch, TailEvent
from corral.core.ports import Minute
from corral.errors import RedisError, RedisResponseError
from corral.gateway.queue_cache import QueueCache
from corral.gateway.requests import BEGINNING, id_order
from corral.gateway.responses import encode
from corral.gateway.sse.feed import key_of
from corral.queue import Queue
from corral.telemetry.logs import logger

FRAME_S = 0.2
"""Between two frames, at least."""
QUEUES_PER_S = 500
"""With more queues than this a frame takes longer, so that Redis has no more requests."""
LIST_S = 2.0
"""How often the queues are listed."""
IDLE_S = 60.0
"""How long the logs are read on after the last reader left."""
PAGE = 1000
PAGES_PER_FRAME = 40
"""Pages of events that are read for one frame at most."""
KEPT_FRAMES = 600
MAX_JOBS = 100
"""Jobs that a frame names for each queue; of others it says that there are more."""
MINUTES = 60
MINUTE_MS = 60_000
SAMPLES = 1000
"""Waits and runs that are kept for the percentiles of one queue."""
OPEN_JOBS = 5000
"""Jobs of one queue whose times are remembered until they end."""

COUNTED = (EventKind.ADDED, EventKind.COMPLETED, EventKind.DEAD, EventKind.RETRY)
_STARTS = frozenset({EventKind.ADDED, EventKind.WAITING, EventKind.DELAYED, EventKind.RETRY})
_ENDS = frozenset({EventKind.COMPLETED, EventKind.DEAD, EventKind.RETRY, EventKind.CANCELLED})


class QueueActivity:
    """The last hour of one queue: events by the minute, and samples of waits and runs."""

    def __init__(self, position: str) -> None:
        self.position = position
        self.minutes: OrderedDict[int, Counter[str]] = OrderedDict()
        self.waits: deque[int] = deque(maxlen=SAMPLES)
        self.runs: deque[int] = deque(maxlen=SAMPLES)
        self._since: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def add(self, columns: EventColumns) -> dict[str, Any]:
        """Count events; return them as the part of a frame."""
        kinds: Counter[str] = Counter()
        jobs: dict[str, str] = {}
        for kind, at, job_id in zip(map(_text, columns.kinds), columns.at, columns.job_ids, strict=True):
            kinds[kind] += 1
            if kind in COUNTED:
                self._minute(at)[kind] += 1
            if job_id:
                name = _text(job_id)
                self._sample(kind, at, name)
                jobs.pop(name, None)
                jobs[name] = kind
        self._drop_old(columns.at[-1])
        latest = dict(islice(reversed(jobs.items()), MAX_JOBS))
        return {"kinds": kinds, "jobs": latest, "has_more": len(jobs) > MAX_JOBS}

    def _minute(self, at: int) -> Counter[str]:
        return self.minutes.setdefault(at // MINUTE_MS, Counter())

    def _drop_old(self, now: int) -> None:
        oldest = now // MINUTE_MS - MINUTES
        for minute in [minute for minute in self.minutes if minute <= oldest]:
            del self.minutes[minute]

    def _sample(self, kind: str, at: int, job_id: str) -> None:
        """Note how long a job waited or ran, from the event before this one."""
        known = self._since.pop(job_id, None)
        if known is not None and kind == EventKind.ACTIVE and known[0] in _STARTS:
            self.waits.append(max(at - known[1], 0))
        elif known is not None and kind in _ENDS and known[0] == EventKind.ACTIVE:
            self.runs.append(max(at - known[1], 0))
        if kind in _STARTS or kind == EventKind.ACTIVE:
            self._since[job_id] = (kind, at)
            if len(self._since) > OPEN_JOBS:
                self._since.popitem(last=False)
        elif known is not None and kind not in _ENDS:
            self._since[job_id] = known

    def document(self, now: int, recorded: Sequence[Minute] = ()) -> dict[str, Any]:
        """Return the last hour as the interface shows it, oldest minute first.

        The events of a busy queue are trimmed within the hour: what workers have recorded fills the gap.
        """
        last = now // MINUTE_MS
        known = {one.at // MINUTE_MS: _counted(one) for one in recorded}
        none: Counter[str] = Counter()
        minutes = [
            self.minutes.get(minute, none) | known.get(minute, none)
            for minute in range(last - MINUTES + 1, last + 1)
        ]
        return {
            "from": (last - MINUTES + 1) * MINUTE_MS,
            **{str(kind): [minute[kind] for minute in minutes] for kind in COUNTED},
            "wait_ms": _percentiles(self.waits),
            "run_ms": _percentiles(self.runs),
        }


class Activity:
    """Reads the event logs of all queues while somebody follows them; the source of one hub's tails."""

    KEY = "activity"

    def __init__(self, corral: Corral, queue_cache: QueueCache) -> None:
        self._corral = corral
        self._queue_cache = queue_cache
        self._queues: dict[str, QueueActivity] = {}
        self._frames: deque[TailEvent] = deque(maxlen=KEPT_FRAMES)
        self._new_frame = asyncio.Event()
        self._error: RedisError | None = None
        """Why the last frame could not be made."""
        self._wanted_at = -IDLE_S
        self._is_complete = asyncio.Event()
        """Whether the logs were read to their ends once."""

    def want(self) -> None:
        """Read on for a while."""
        self._wanted_at = monotonic()

    async def documents(self, queues: Sequence[Queue]) -> dict[str, dict[str, Any]]:
        """Return the last hour of these queues by their keys, as far as their logs reach."""
        self.want()
        # what is not read in this time follows with the next request
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_complete.wait(), 1.0)
        now = self._corral.clock()
        none = QueueActivity(BEGINNING)
        recorded = await asyncio.gather(*map(_recorded, queues))
        return {
            key_of(queue): self._queues.get(key_of(queue), none).document(now, minutes)
            for queue, minutes in zip(queues, recorded, strict=True)
        }

    async def run(self) -> None:
        """Make frames until cancelled."""
        listed_at = -LIST_S
        queues: list[Queue] = []
        while True:
            await asyncio.sleep(max(FRAME_S, len(queues) / QUEUES_PER_S))
            if monotonic() - self._wanted_at > IDLE_S:
                self._is_complete.clear()
                continue
            try:
                if monotonic() - listed_at >= LIST_S:
                    queues, listed_at = await self._queue_cache.queues(), monotonic()
                await self._make_frame(queues)
                self._error = None
            except RedisError as error:
                self._error = error
                self._new_frame.set()
            except Exception as error:  # an error of ours must not end all later frames
                logger("gateway").error("reading activity failed", error=repr(error))

    async def _make_frame(self, queues: Sequence[Queue]) -> None:
        budget = [PAGES_PER_FRAME]
        parts = await asyncio.gather(*(self._read(queue, budget) for queue in queues))
        changed = {key_of(queue): part for queue, part in zip(queues, parts, strict=True) if part}
        if budget[0] > 0:
            self._is_complete.set()
        if changed:
            at = self._corral.clock()
            data = encode({"at": at, "queues": changed})
            sequence = 0
            if self._frames and id_order(self._frames[-1].id)[0] >= at:
                at, last = id_order(self._frames[-1].id)
                sequence = last + 1
            self._frames.append(TailEvent(f"{at}-{sequence}", "activity", data, False))
            self._new_frame.set()

    async def _read(self, queue: Queue, budget: list[int]) -> dict[str, Any] | None:
        key = key_of(queue)
        activity = self._queues.get(key)
        if activity is None:
            hour_ago = self._corral.clock() - MINUTES * MINUTE_MS
            activity = self._queues[key] = QueueActivity(f"{hour_ago}-0")
        total: dict[str, Any] | None = None
        while budget[0] > 0:
            page = await queue.events.page(activity.position, count=PAGE)
            if page.last is not None:
                activity.position = page.last
            if len(page.columns):
                part = activity.add(page.columns)
                if total is not None:
                    part["kinds"] += total["kinds"]
                    part["has_more"] = part["has_more"] or total["has_more"]
                total = part
            if page.seen < PAGE:
                break
            budget[0] -= 1
        return total

    # -- as the source of tails -----------------------------------------------------------------------------

    @property
    def last_id(self) -> str:
        """The id of the last frame."""
        return self._frames[-1].id if self._frames else f"{self._corral.clock()}-0"

    async def read(self, positions: Sequence[tuple[str, str]], count: int, max_bytes: int) -> list[TailBatch]:
        """Return the frames after each position that are kept; raise an error while Redis cannot be read."""
        self.want()
        if self._error is not None:
            raise self._error
        return [self._after(position) for _, position in positions]

    def _after(self, position: str) -> TailBatch:
        order = id_order(position)
        frames = [frame for frame in self._frames if id_order(frame.id) > order]
        return TailBatch(
            events=frames,
            position=frames[-1].id if frames else position,
            exists=True,
            is_over=False,
            is_cut=len(frames) == KEPT_FRAMES,
            has_more=False,
        )

    async def changed(self, positions: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        """Return the key where a tail is behind the last frame, or must hear of an outage."""
        self.want()
        last = id_order(self.last_id) if self._frames else (0, 0)
        return [key for key, position in positions if self._error or id_order(position) < last]

    async def hints(self) -> AsyncGenerator[Sequence[str]]:
        """Yield the key with each new frame."""
        while True:
            await self._new_frame.wait()
            self._new_frame.clear()
            yield (self.KEY,)


async def _recorded(queue: Queue) -> list[Minute]:
    try:
        return await queue.minutes(MINUTES)
    except RedisResponseError:
        return []  # this user may read the protocol's own keys only


def _counted(minute: Minute) -> Counter[str]:
    return Counter(
        {
            EventKind.ADDED: minute.added or 0,
            EventKind.COMPLETED: minute.completed,
            EventKind.DEAD: minute.dead,
            EventKind.RETRY: minute.retried,
        }
    )


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _percentiles(samples: Sequence[int]) -> dict[str, int] | None:
    if not samples:
        return None
    ordered = sorted(samples)
    last = len(ordered) - 1
    return {"p50": ordered[round(last * 0.5)], "p95": ordered[round(last * 0.95)], "count": len(ordered)}
