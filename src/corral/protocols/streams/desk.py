"""The streams protocol's Desk: jobs for clients of the gateway, in the contract's own words."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgpack

from corral.core.desk import Admission, Bounds, Page, Shown, Verdict
from corral.core.job import Job
from corral.errors import InvalidOptions
from corral.protocols.binding import Binding
from corral.protocols.streams import codec, public
from corral.protocols.streams.broker import SCRIPTS, head
from corral.protocols.streams.codec import Settings
from corral.protocols.streams.keys import Keys

SCANNED = 1000
"""Keys looked at in one step of a listing."""
MOST_STEPS = 20
"""Steps of one page: a server full of other keys answers with a short page rather than late."""


class StreamsDesk:
    """Creates, shows and lists jobs as the document says."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    async def admit(self, job: Job, client: str, owner: str | None, bounds: Bounds) -> Admission:
        keys = self._keys
        row = codec.encode_job(job, str(uuid4()), keys, self._settings.ttl_s, self._binding.clock())
        names = [keys.stream, keys.events, *keys.of_jobs([row.id]), keys.share(client)]
        key = job.options.extra.get("idempotency_key")
        if key:
            # two clients that may not see each other's jobs may use the same key
            full = f"{owner}:{key}" if owner else key
            row = row._replace(idempotency_key=keys.idempotency(full), fingerprint_key=keys.fingerprint(full))
            names += [row.idempotency_key, row.fingerprint_key]
        rate = bounds.rate
        word, job_id, status, created, backlog, left, ms = await self._store.run(
            SCRIPTS["admit"],
            names,
            (
                *head(self._binding, keys, self._settings),
                msgpack.packb([row], use_bin_type=False),
                owner or "",
                "" if bounds.backlog is None else bounds.backlog,
                rate.count if rate else "",
                rate.duration if rate else "",
            ),
        )
        if word in (b"conflict", b"unfinished"):
            raise codec.conflict(word, str(key), job_id.decode())
        return Admission(
            verdict=Verdict(word.decode()),
            job_id=job_id.decode(),
            status=status.decode(),
            created_at=public.number(created),
            backlog=backlog,
            left=left,
            wait_ms=ms,
        )

    async def show(self, job_id: str) -> Shown | None:
        if not public.is_id(job_id):
            return None
        flat = await self._store.call("HGETALL", self._keys.job(job_id))
        return Shown(public.job(flat), public.owner(flat)) if flat else None

    async def page(
        self, cursor: str, count: int, status: str | None, task: str | None, owner: str | None
    ) -> Page:
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
                return Page(found, str(at._replace(after=str(found[-1]["job_id"]))))
            if following == "0":
                return Page(found, None)
            # jobs may be rare among the keys of others
            at = public.Cursor(following, min(4 * at.size, SCANNED), "")
            if len(found) >= count:
                break
        return Page(found, str(at._replace(size=count)))

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
        return {"server": "answers", "scripts": "known", "group": "there"}
