"""The streams protocol's HttpApi: jobs and their events for clients of the gateway."""

from asyncio import gather
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import uuid4

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
from corral.protocols.streams import codec
from corral.protocols.streams.http import documents
from corral.protocols.streams.http.documents import FINAL_STATUSES, ListingCursor
from corral.protocols.streams.inspector import job_ids_of
from corral.protocols.streams.scripts import SCRIPTS, StreamsPort
from corral.protocols.wire import pack, text, time_ms
from corral.store import streams
from corral.store.scanning import escape_pattern

BEGINNING = "0-0"
SCANNED = 1000
"""Keys looked at in one step of a listing."""
LARGE_FIELDS = ("payload", "result", "error")
MOST_STEPS = 20
"""Steps of one page: a server full of other keys answers with a short page rather than late."""


class StreamsHttpApi(StreamsPort):
    """Creates, shows and lists jobs, and reads their events, as the document says.

    `job:{id}:events` has every event of a job; `jobs:events` only hints that there are new ones.
    """

    async def admit(self, job: Job, client: str, owner: str | None, limits: AdmissionLimits) -> Admission:
        keys = self._keys
        row = codec.encode_job(job, str(uuid4()), keys, self._settings.ttl_s, self._binding.clock())
        names = [keys.stream, keys.events, *keys.of_jobs([row.id]), keys.quota(client)]
        key = job.options.extra.get("idempotency_key")
        if key:
            # clients that may not see each other's jobs may use the same key
            full = f"{owner}:{key}" if owner else key
            row = row._replace(idempotency_key=keys.idempotency(full), fingerprint_key=keys.fingerprint(full))
            names += [row.idempotency_key, row.fingerprint_key]
        rate = limits.rate
        word, job_id, status, created, backlog, left, wait_ms = await self._store.run(
            SCRIPTS["admit"],
            names,
            (
                *self._head(),
                pack([row]),
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
            created_at=time_ms(created),
            backlog=backlog,
            left=left,
            wait_ms=wait_ms,
        )

    async def show(self, job_id: str) -> OwnedJob | None:
        if not documents.is_job_id(job_id):
            return None
        flat = await self._store.call("HGETALL", self._keys.job(job_id))
        return documents.owned_job(flat) if flat else None

    async def page(
        self, cursor: str, count: int, status: str | None, task: str | None, owner: str | None, max_bytes: int
    ) -> JobListing:
        """Return jobs in the order of the server's keys; each that exists all the while is listed once.

        The contract has no list of jobs, so the keys are scanned, a bounded number a page: a page may be
        short, or empty, and still have a next one.
        """
        at = ListingCursor.parse(cursor) if cursor else ListingCursor("0", count, "")
        if at is None:
            raise InvalidOptions(f"cursor {cursor[:40]!r} is not valid; use a page's `next`")
        jobs: list[dict[str, Any]] = []
        left = max_bytes
        for _ in range(MOST_STEPS):
            following, ids = await self._scan(at.position, at.size)
            step = await self._matching([job_id for job_id in ids if job_id > at.after], status, task, owner)
            listed = _fitting(step, count - len(jobs), left, is_first=not jobs)
            jobs += await self._documents([job_id for job_id, _ in listed])
            left -= sum(size for _, size in listed)
            if len(listed) < len(step):
                last = listed[-1][0] if listed else at.after
                return JobListing(jobs, str(at._replace(after=last)))
            if following == "0":
                return JobListing(jobs, None)
            # jobs may be rare among other keys
            at = ListingCursor(following, min(4 * at.size, SCANNED), "")
            if len(jobs) >= count:
                break
        return JobListing(jobs, str(at._replace(size=count)))

    async def _scan(self, position: str, count: int) -> tuple[str, list[str]]:
        """Return the next position, and the ids of this step in a fixed order."""
        prefix = self._keys.job_prefix
        pattern = escape_pattern(prefix) + "*"
        following, keys = await self._store.call(
            "SCAN", position, "MATCH", pattern, "COUNT", count, "TYPE", "hash"
        )
        ids = {text(key[len(prefix) :]) for key in keys}
        return following.decode(), sorted(filter(documents.is_job_id, ids))

    async def _matching(
        self, ids: Sequence[str], status: str | None, task: str | None, owner: str | None
    ) -> list[tuple[str, int]]:
        """Return those of these jobs that match, each with its bytes: a payload may have 200 KB."""
        fields = ("job_id", "status", "task", "client")
        commands: list[tuple[str, ...]] = []
        for key in map(self._keys.job, ids):
            commands += [("HMGET", key, *fields), *(("HSTRLEN", key, name) for name in LARGE_FIELDS)]
        replies = await self._store.pipe(commands)
        step = 1 + len(LARGE_FIELDS)
        matching = []
        for number, job_id in enumerate(ids):
            (its_id, its_status, its_task, its_owner), *sizes = replies[number * step : (number + 1) * step]
            if (
                its_id is not None
                and (status is None or its_status == status.encode())
                and (task is None or its_task == task.encode())
                and (owner is None or its_owner == owner.encode())
            ):
                matching.append((job_id, sum(sizes)))
        return matching

    async def _documents(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        hashes = await self._store.pipe([("HGETALL", self._keys.job(job_id)) for job_id in ids])
        return [documents.job_document(flat) for flat in hashes if flat]

    async def check(self) -> dict[str, str]:
        scripts = [SCRIPTS[verb] for verb in ("admit", "cancel", "tail_state")]
        loaded = await self._store.call("SCRIPT", "EXISTS", *(script.sha for script in scripts))
        for script, is_loaded in zip(scripts, loaded, strict=True):
            if not is_loaded:
                await self._store.call("SCRIPT", "LOAD", script.text)
        await self._store.run(SCRIPTS["ensure_group"], [self._keys.stream], ())
        return {"redis": "ok", "scripts": "ok", "group": "ok"}

    # -- events of single jobs --------------------------------------------------------------------------

    async def tail_state(self, job_id: str) -> TailState | None:
        if not documents.is_job_id(job_id):
            return None
        keys = (self._keys.job(job_id), self._keys.job_events(job_id))
        status, owner, first, last, kind, kept, added = await self._store.run(SCRIPTS["tail_state"], keys, ())
        if not status:
            return None
        return TailState(
            status=text(status),
            owner=text(owner) or None,
            first=first.decode() or None,
            last=last.decode() or None,
            has_final_event=kind in FINAL_STATUSES,
            missing=max(added - kept, 0) if added >= 0 else 0,
        )

    async def read(self, positions: Sequence[tuple[str, str]], count: int, max_bytes: int) -> list[TailBatch]:
        return list(await gather(*(self._read(*position, count, max_bytes) for position in positions)))

    async def _read(self, job_id: str, after: str, count: int, max_bytes: int) -> TailBatch:
        new, first, has_more = await streams.read_bytes(
            self._store, self._keys.job_events(job_id), after, count, max_bytes
        )
        status: bytes | None = b""
        if not new:
            status = await self._store.call("HGET", self._keys.job(job_id), "status")
        return TailBatch(
            events=[documents.tail_event(entry_id, flat) for entry_id, flat in new],
            position=new[-1][0].decode() if new else after,
            exists=status is not None,
            is_over=status in FINAL_STATUSES,
            # the event that was seen last is gone: others behind it may be too
            is_cut=bool(new) and after != BEGINNING and first == new[0][0],
            has_more=has_more,
        )

    async def changed(self, positions: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        ids = [job_id for job_id, _ in positions]
        hashes = [self._keys.job(job_id) for job_id in ids]
        streams_and_ids = [*map(self._keys.job_events, ids), *(after for _, after in positions)]
        grown, existing = await self._store.pipe(
            [("XREAD", "COUNT", 1, "STREAMS", *streams_and_ids), ("EXISTS", *hashes)]
        )
        names = {name for name, _ in grown or ()}
        changed = [job_id for job_id in ids if self._keys.job_events(job_id).encode() in names]
        if is_thorough or existing < len(hashes):
            statuses = await self._store.pipe([("HGET", name, "status") for name in hashes])
            changed += [
                job_id
                for job_id, status in zip(ids, statuses, strict=True)
                if status is None or status in FINAL_STATUSES
            ]
        return changed

    async def hints(self) -> AsyncGenerator[Sequence[str]]:
        async for entries in streams.follow(self._store, self._keys.events, "$"):
            yield job_ids_of(entries)


def _fitting(
    jobs: Sequence[tuple[str, int]], count: int, max_bytes: int, is_first: bool
) -> Sequence[tuple[str, int]]:
    """Return the first of these jobs, as many as fit; the very first of a page always does."""
    used = 0
    for position, (_, size) in enumerate(jobs[:count]):
        used += size
        if used > max_bytes and not (is_first and position == 0):
            return jobs[:position]
    return jobs[:count]
