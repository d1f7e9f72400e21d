"""The scheduler's part of a broker: lead, take what is due, fire it, and keep the counters honest."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec
import orjson

from corral.core.cron import Cron
from corral.core.schedule import CATCH_UPS, MOST_FIRINGS, plan
from corral.errors import InvalidOptions, RedisError
from corral.protocols.base import Binding
from corral.protocols.bridgemq.codec import pack
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, Keys, instance_id
from corral.protocols.bridgemq.names_with import names_with
from corral.protocols.bridgemq.options import Settings
from corral.store.scripts import Scripts

LEASE_MS = 30_000
"""A schedule that was taken and not fired is taken by another after so long."""
MOST_SCHEDULES = 50
"""Schedules taken in one go."""
MOST_ROUNDS = 20
"""A long downtime is made up for in several goes, so that nothing else waits for it."""
MOST_BYTES = 1024 * 1024
"""The most JSON of one schedule's firings in one go."""
AUDIT_EVERY_MS = 60_000

SCRIPTS = Scripts("corral.protocols.bridgemq")


class Scheduler:
    """One candidate for the leadership of a namespace; only the leader fires."""

    def __init__(self, binding: Binding, keys: Keys, settings: Settings) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = keys
        self._settings = settings
        self.id = f"{settings.identity.server}:{uuid4().hex}"
        """Our value in the scheduler's lock."""
        self._audited_at: int | None = None
        self._is_leader = False

    def _head(self) -> tuple[Any, ...]:
        return (self._binding.clock(), "", self._settings.max_events)

    async def once(self) -> int | None:
        """How many jobs were fired; None where another leads."""
        fired = 0
        for _ in range(MOST_ROUNDS):
            taken = await self.take()
            if taken is None:
                return None
            fence, rows = taken
            if not rows:
                return fired
            added = await self.fire(fence, rows)
            if added is None:
                return None
            fired += added
        return fired

    async def take(self) -> tuple[int, list[Any]] | None:
        """(number of our leadership, due schedules leased to us); None where another leads."""
        start = self._head()
        fence, rows = await self._store.run(
            SCRIPTS["acquire_leader"],
            [*self._keys.fixed, *self._keys.scheduler],
            (*start, self.id, LEASE_MS, MOST_SCHEDULES),
        )
        self._is_leader = bool(fence)
        return (fence, rows) if fence else None

    async def fire(self, fence: int, rows: Sequence[Any]) -> int | None:
        """How many jobs were added for what `take` brought; None where we do not lead any more."""
        fired = 0
        for row in rows:
            start = self._head()
            added: int = await self._store.run(
                SCRIPTS["fire"],
                [*self._keys.fixed, *self._keys.scheduler],
                (*start, self.id, fence, pack([_planned(row, start[0])])),
            )
            if added < 0:
                return None
            fired += added
        return fired

    async def audit(self) -> list[tuple[str, int, int]]:
        """Set the concurrent counters right, now and then; (type, counted, really active) of wrong ones."""
        now = self._binding.clock()
        if self._audited_at is not None and abs(now - self._audited_at) < AUDIT_EVERY_MS:
            return []
        self._audited_at = now
        return await audit(self._binding, self._keys, self._settings)

    async def close(self) -> None:
        """Give the leadership up, so that another need not wait for it."""
        if not self._is_leader:
            return
        self._is_leader = False
        with suppress(RedisError):  # then the lock runs out by itself
            await self._store.run(SCRIPTS["release_leader"], [self._keys.scheduler[0]], (self.id,))


async def audit(binding: Binding, keys: Keys, settings: Settings) -> list[tuple[str, int, int]]:
    """Set the concurrent counters right; (type, counted, really active) of those that were wrong."""
    prefix = keys.concurrent("")
    types = [name[len(prefix.encode()) :] for name in await names_with(binding.store, prefix)]
    start = (binding.clock(), "", settings.max_events)
    flat = await binding.store.run(SCRIPTS["audit"], keys.fixed, (*start, *types))
    rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    return [(kind.decode("utf-8", "replace"), int(before), int(now)) for kind, before, now in rows]


# -- what a schedule's JSON says, and the JSON of its firings -----------------------------------------------


def read_schedule(raw: bytes) -> tuple[Cron, str]:
    """(cron, catch-up) of a schedule's JSON; `InvalidOptions` where there is none to be read."""
    wire = _loose(raw).get("schedule")
    schedule = orjson.loads(bytes(wire)) if wire is not None else None
    if not isinstance(schedule, dict):
        raise InvalidOptions("its job data has no schedule")
    catch_up = schedule.get("catchUp")
    cron = Cron.parse(schedule.get("cron"), schedule.get("timezone") or "UTC")
    return cron, catch_up if catch_up in CATCH_UPS else "once"


def encode_firing(raw: bytes, schedule_id: str, fire_time: int, now: int) -> tuple[str, bytes]:
    """(id, JSON) of one firing: the schedule's own JSON, the user's parts of it byte for byte."""
    fields = _loose(raw)
    job_id = instance_id(schedule_id, fire_time)
    mine: dict[str, Any] = {
        "id": job_id,
        "attempt": 0,
        "schedule": {"firedBy": schedule_id, "fireTime": fire_time},
        "createdAt": now,
    }
    if "jobId" in fields:
        mine["jobId"] = job_id
    return job_id, msgspec.json.encode({**fields, **mine})


def describe(raw: bytes) -> tuple[str, str, int]:
    """(type, queue, priority) of a job's JSON."""
    fields = {name: orjson.loads(bytes(value)) for name, value in _loose(raw).items() if name in _DESCRIBED}
    kind, queue, priority = (fields.get(name) for name in _DESCRIBED)
    return (
        kind if isinstance(kind, str) else "",
        queue if isinstance(queue, str) and queue else DEFAULT_QUEUE,
        int(priority) if isinstance(priority, int | float) else 0,
    )


_DESCRIBED = ("type", "queue", "priority")
_loose_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _loose(raw: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a JSON object, their values unread."""
    try:
        return _loose_decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidOptions(f"its job data is no JSON object: {error}") from None


def _planned(row: Sequence[Any], now: int) -> tuple[Any, ...]:
    """A row for the fire script; a schedule that cannot be read goes to the dead letters."""
    schedule_id, due, lease, raw = row[0].decode(), int(row[1]), int(row[2]), row[3]
    try:
        cron, catch_up = read_schedule(raw)
        most = max(min(MOST_FIRINGS, MOST_BYTES // len(raw)), 1)
        owed = plan(cron, due, now, catch_up, most)
        firings = [encode_firing(raw, schedule_id, at, now) for at in owed.firings]
        return (schedule_id, due, lease, owed.next_due or False, *describe(raw), firings, "")
    except InvalidOptions as error:
        return (schedule_id, due, lease, False, "", DEFAULT_QUEUE, 0, [], str(error))
