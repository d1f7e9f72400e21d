"""The streams protocol's HttpApi: jobs and their events for clients of the gateway."""

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
        self, cursor: str, count: int, status: str | None, task: str | None, owner: str | None
    ) -> JobListing:
        """Return jobs in the order of the server's keys; each that exists all the while is listed once.

        The contract has no list of jobs, so the keys are scanned, a bounded number a page: a page may be
        short, or empty, and still have a next one.
        """
        at = ListingCursor.parse(cursor) if cursor else ListingCursor("0", count, "")
        if at is None:
            raise InvalidOptions(f"cursor {cursor[:40]!r} is not valid; use a page's `next`")
        jobs: list[dict[str, Any]] = []
        for _ in range(MOST_STEPS):
            following, ids = await self._scan(at.position, at.size)
            step = await self._matching([job_id for job_id in ids if job_id > at.after], status, task, owner)
            free = count - len(jobs)
            jobs += step[:free]
            if len(step) > free:
                return JobListing(jobs, str(at._replace(after=str(jobs[-1]["job_id"]))))
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
    ) -> list[dict[str, Any]]:
        # the few fields that are compared first: a payload may have 200 KB
        fields = ("job_id", "status", "task", "client")
        rows = await self._store.pipe([("HMGET", self._keys.job(job_id), *fields) for job_id in ids])
        matching = [
            job_id
            for job_id, (its_id, its_status, its_task, its_owner) in zip(ids, rows, strict=True)
            if its_id is not None
            and (status is None or its_status == status.encode())
            and (task is None or its_task == task.encode())
            and (owner is None or its_owner == owner.encode())
        ]
        hashes = await self._store.pipe([("HGETALL", self._keys.job(job_id)) for job_id in matching])
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
            is_loose = bool(new) and not is_joined and after != BEGINNING
            status: bytes | None = b""
            if not new:
                status = await self._store.call("HGET", self._keys.job(job_id), "status")
            batches.append(
                TailBatch(
                    events=[documents.tail_event(entry_id, flat) for entry_id, flat in new],
                    position=new[-1][0].decode() if new else after,
                    exists=status is not None,
                    is_over=status in FINAL_STATUSES,
                    is_cut=is_loose and await self._is_first(job_id, new[0][0]),
                    has_more=len(new) >= count,
                )
            )
        return batches

    async def _is_first(self, job_id: str, entry_id: bytes) -> bool:
        """Return whether nothing older than this entry is kept."""
        first = await self._store.call("XRANGE", self._keys.job_events(job_id), "-", "+", "COUNT", 1)
        return bool(first) and first[0][0] == entry_id

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
