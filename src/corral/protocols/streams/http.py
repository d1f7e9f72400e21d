"""The streams protocol's HttpApi: jobs and their events for clients of the gateway."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import uuid4

import msgpack

from corral.core.http_api import (
    Admission,
    AdmissionLimits,
    AdmissionVerdict,
    JobListing,
    OwnedJob,
    TailBatch,
    TailState,
)
from corral.core.job import Job
from corral.errors import InvalidOptions
from corral.protocols.base import Binding
from corral.protocols.streams import codec, public
from corral.protocols.streams.broker import SCRIPTS, head
from corral.protocols.streams.codec import Settings
from corral.protocols.streams.keys import Keys
from corral.store import streams

BEGINNING = "0-0"
SCANNED = 1000
"""Keys looked at in one step of a listing."""
MOST_STEPS = 20
"""Steps of one page: a server full of other keys answers with a short page rather than late."""


class StreamsHttpApi:
    """Creates, shows and lists jobs, and reads their events, as the document says.

    `job:{id}:events` has every event of a job; `jobs:events` only hints that there are new ones.
    """

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    async def admit(self, job: Job, client: str, owner: str | None, limits: AdmissionLimits) -> Admission:
        keys = self._keys
        row = codec.encode_job(job, str(uuid4()), keys, self._settings.ttl_s, self._binding.clock())
        names = [keys.stream, keys.events, *keys.of_jobs([row.id]), keys.share(client)]
        key = job.options.extra.get("idempotency_key")
        if key:
            # two clients that may not see each other's jobs may use the same key
            full = f"{owner}:{key}" if owner else key
            row = row._replace(idempotency_key=keys.idempotency(full), fingerprint_key=keys.fingerprint(full))
            names += [row.idempotency_key, row.fingerprint_key]
        rate = limits.rate
        word, job_id, status, created, backlog, left, ms = await self._store.run(
            SCRIPTS["admit"],
            names,
            (
                *head(self._binding, keys, self._settings),
                msgpack.packb([row], use_bin_type=False),
                owner or "",
                "" if limits.backlog is None else limits.backlog,
                rate.count if rate else "",
                rate.duration if rate else "",
            ),
        )
        if word in (b"conflict", b"unfinished"):
            raise codec.conflict(word, str(key), job_id.decode())
        return Admission(
            verdict=AdmissionVerdict(word.decode()),
            job_id=job_id.decode(),
            status=status.decode(),
            created_at=public.number(created),
            backlog=backlog,
            left=left,
            wait_ms=ms,
        )

    async def show(self, job_id: str) -> OwnedJob | None:
        if not public.is_id(job_id):
            return None
        flat = await self._store.call("HGETALL", self._keys.job(job_id))
        return OwnedJob(public.job(flat), public.owner(flat)) if flat else None

    async def page(
        self, cursor: str, count: int, status: str | None, task: str | None, owner: str | None
    ) -> JobListing:
        """Jobs in the order the server keeps its keys; each that is there all the while is found once.

        The contract has no list of jobs, so the keys are looked through, a bounded number a page: a page may
        be short, or empty, and still have a next one.
        """
        at = public.Cursor.read(cursor) if cursor else public.Cursor("0", count, "")
        if at is None:
            raise InvalidOptions(f"cursor {cursor[:40]!r} is none of ours; use a page's `next`")
        found: list[dict[str, Any]] = []
        for _ in range(MOST_STEPS):
            following, ids = await self._scan(at.position, at.size)
            jobs = await self._matching([job_id for job_id in ids if job_id > at.after], status, task, owner)
            free = count - len(found)
            found += jobs[:free]
            if len(jobs) > free:
                return JobListing(found, str(at._replace(after=str(found[-1]["job_id"]))))
            if following == "0":
                return JobListing(found, None)
            # jobs may be rare among the keys of others
            at = public.Cursor(following, min(4 * at.size, SCANNED), "")
            if len(found) >= count:
                break
        return JobListing(found, str(at._replace(size=count)))

    async def _scan(self, position: str, count: int) -> tuple[str, list[str]]:
        """Where to go on, and the ids of this step in a fixed order."""
        prefix = self._keys.job_prefix
        pattern = public.literal(prefix) + "*"
        following, keys = await self._store.call(
            "SCAN", position, "MATCH", pattern, "COUNT", count, "TYPE", "hash"
        )
        ids = {key[len(prefix) :].decode("utf-8", "replace") for key in keys}
        return following.decode(), sorted(filter(public.is_id, ids))

    async def _matching(
        self, ids: Sequence[str], status: str | None, task: str | None, owner: str | None
    ) -> list[dict[str, Any]]:
        # the few fields that are asked about first: a payload may have 200 KB
        asked = ("job_id", "status", "task", "client")
        rows = await self._store.pipe([("HMGET", self._keys.job(job_id), *asked) for job_id in ids])
        wanted = [
            job_id
            for job_id, (its_id, its_status, its_task, its_owner) in zip(ids, rows, strict=True)
            if its_id is not None
            and (status is None or its_status == status.encode())
            and (task is None or its_task == task.encode())
            and (owner is None or its_owner == owner.encode())
        ]
        whole = await self._store.pipe([("HGETALL", self._keys.job(job_id)) for job_id in wanted])
        return [public.job(flat) for flat in whole if flat]

    async def check(self) -> dict[str, str]:
        """Make sure of the group and the scripts; what is ready, by its name."""
        scripts = [SCRIPTS[verb] for verb in ("admit", "cancel", "peek")]
        known = await self._store.call("SCRIPT", "EXISTS", *(script.sha for script in scripts))
        for script, is_known in zip(scripts, known, strict=True):
            if not is_known:
                await self._store.call("SCRIPT", "LOAD", script.text)
        await self._store.run(SCRIPTS["ensure_group"], [self._keys.stream], ())
        return {"redis": "ok", "scripts": "ok", "group": "ok"}

    # -- events of single jobs --------------------------------------------------------------------------

    async def tail_state(self, job_id: str) -> TailState | None:
        if not public.is_id(job_id):
            return None
        keys = (self._keys.job(job_id), self._keys.job_events(job_id))
        status, owner, first, last, kind, kept, added = await self._store.run(SCRIPTS["peek"], keys, ())
        if not status:
            return None
        return TailState(
            status=status.decode("utf-8", "replace"),
            owner=owner.decode("utf-8", "replace") or None,
            first=first.decode() or None,
            last=last.decode() or None,
            has_final_event=kind.decode("utf-8", "replace") in public.OVER,
            missing=max(added - kept, 0) if added >= 0 else 0,
        )

    async def read(self, positions: Sequence[tuple[str, str]], count: int) -> list[TailBatch]:
        # from the last event that was seen: where it is gone, others behind it may be too
        ranges = await self._store.pipe(
            [
                ("XRANGE", self._keys.job_events(job_id), after, "+", "COUNT", count + 1)
                for job_id, after in positions
            ]
        )
        batches = []
        for (job_id, after), entries in zip(positions, ranges, strict=True):
            is_joined = bool(entries) and entries[0][0] == after.encode()
            new = entries[1:] if is_joined else entries[:count]
            if new:
                is_loose = not is_joined and after != BEGINNING
                is_cut = is_loose and await self._begins_with(job_id, new[0][0])
                batches.append(_batch(new, is_cut, len(new) >= count))
            else:
                status = await self._store.call("HGET", self._keys.job(job_id), "status")
                batches.append(_silence(after, status))
        return batches

    async def changed(self, positions: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        ids = [job_id for job_id, _ in positions]
        hashes = [self._keys.job(job_id) for job_id in ids]
        streams_and_ids = [*map(self._keys.job_events, ids), *(after for _, after in positions)]
        grown, there = await self._store.pipe(
            [("XREAD", "COUNT", 1, "STREAMS", *streams_and_ids), ("EXISTS", *hashes)]
        )
        found = {name for name, _ in grown or ()}
        worth = [job_id for job_id in ids if self._keys.job_events(job_id).encode() in found]
        if is_thorough or there < len(hashes):
            rows = await self._store.pipe([("HGET", name, "status") for name in hashes])
            worth += [
                job_id for job_id, row in zip(ids, rows, strict=True) if row is None or row in _OVER_BYTES
            ]
        return worth

    async def _begins_with(self, job_id: str, entry_id: bytes) -> bool:
        """Is nothing older than this entry kept?"""
        first = await self._store.call("XRANGE", self._keys.job_events(job_id), "-", "+", "COUNT", 1)
        return bool(first) and first[0][0] == entry_id

    async def hints(self) -> AsyncGenerator[Sequence[str]]:
        async for entries in streams.follow(self._store, self._keys.events, "$"):
            ids = (dict(zip(flat[::2], flat[1::2], strict=True)).get(b"job_id") for _, flat in entries)
            yield [job_id.decode("utf-8", "replace") for job_id in ids if job_id]


_OVER_BYTES = frozenset(word.encode() for word in public.OVER)


def _batch(entries: Sequence[tuple[bytes, Sequence[bytes]]], is_cut: bool, has_more: bool) -> TailBatch:
    return TailBatch(
        events=[public.tail_event(entry_id, flat) for entry_id, flat in entries],
        position=entries[-1][0].decode(),
        exists=True,
        is_over=False,
        is_cut=is_cut,
        has_more=has_more,
    )


def _silence(after: str, status: bytes | None) -> TailBatch:
    return TailBatch(
        events=(),
        position=after,
        exists=status is not None,
        is_over=status in _OVER_BYTES,
        is_cut=False,
        has_more=False,
    )
