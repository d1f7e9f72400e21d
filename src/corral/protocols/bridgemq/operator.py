"""The BridgeMQ protocol's Operator: writes on demand."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from corral.core.job import Job
from corral.errors import InvalidName, InvalidOptions
from corral.protocols.binding import Binding
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.broker import SCRIPTS, head
from corral.protocols.bridgemq.inspector import PAGE, BridgemqInspector
from corral.protocols.bridgemq.keys import Keys
from corral.protocols.bridgemq.options import Settings, wanted
from corral.protocols.bridgemq.scheduling import audit, describe, encode_firing, read_schedule
from corral.store.scripts import Script

MOST_IDS = 100
"""Ids in one call: taking one out of a long list costs a walk along it."""


class BridgemqOperator:
    """Pause, cancel, remove, replay; schedules; and the counters."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    def _head(self) -> tuple[Any, ...]:
        return head(self._binding, self._settings)

    async def pause(self) -> None:
        await self._set_pause("paused")

    async def resume(self) -> None:
        await self._set_pause("resumed")

    async def _set_pause(self, word: str) -> None:
        await self._store.run(SCRIPTS["pause"], self._keys.fixed, (*self._head(), self._binding.queue, word))

    async def retry(self, job_ids: Sequence[str]) -> list[str]:
        """Put ended jobs back: dead ones, and completed ones whose data was kept."""
        return await self._run(SCRIPTS["replay"], job_ids)

    async def promote(self, job_ids: Sequence[str]) -> list[str]:
        return await self._run(SCRIPTS["promote_jobs"], job_ids)

    async def remove(self, job_ids: Sequence[str]) -> list[str]:
        return await self._run(SCRIPTS["remove"], job_ids)

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        return await self._run(SCRIPTS["cancel"], job_ids)

    async def _run(self, script: Script, job_ids: Sequence[str]) -> list[str]:
        done: list[str] = []
        for start in range(0, len(job_ids), MOST_IDS):
            chunk = job_ids[start : start + MOST_IDS]
            answer = await self._store.run(script, self._keys.fixed, (*self._head(), *chunk))
            done += [job_id.decode("utf-8", "replace") for job_id in answer]
        return done

    # -- dead letters -----------------------------------------------------------------------------------

    async def replay(
        self,
        job_ids: Sequence[str] | None = None,
        *,
        name: str | None = None,
        reason: str | None = None,
        since: int | None = None,
        until: int | None = None,
        most: int | None = None,
    ) -> list[str]:
        """Put dead letters of this queue back to waiting, with all their attempts; ids of those.

        By ids, or by a filter: the job's name, a part of its reason, when it died (ms since the epoch); with
        neither, all of them. Each batch is one step on the server: whenever this is interrupted, every job
        is either still a dead letter or waiting.

        >>> await operator.replay(name="send-email", reason="timed out")   # doctest: +SKIP
        """
        chosen = _chooser(name, reason, since, until)
        return await self._for_dead(self.retry, job_ids, chosen, most)

    async def discard(
        self,
        job_ids: Sequence[str] | None = None,
        *,
        name: str | None = None,
        reason: str | None = None,
        since: int | None = None,
        until: int | None = None,
        most: int | None = None,
    ) -> list[str]:
        """Delete dead letters of this queue, chosen as in `replay`; ids of those."""
        chosen = _chooser(name, reason, since, until)
        return await self._for_dead(self.remove, job_ids, chosen, most)

    async def _for_dead(
        self,
        act: Callable[[Sequence[str]], Any],
        job_ids: Sequence[str] | None,
        chosen: Callable[[Job], bool],
        most: int | None,
    ) -> list[str]:
        ids = [job.id async for job in self._dead(job_ids) if chosen(job)]
        done: list[str] = await act(ids if most is None else ids[:most])
        return done

    async def _dead(self, job_ids: Sequence[str] | None) -> AsyncIterator[Job]:
        inspector = BridgemqInspector(self._binding)
        if job_ids is not None:
            for job_id in job_ids:
                job = await inspector.job(job_id)
                if job is not None and job.queue == self._binding.queue and job.state == "dead":
                    yield job
            return
        start = 0
        while page := await inspector.dead_letters(start, PAGE):
            for job in page:
                yield job
            start += len(page)

    # -- schedules --------------------------------------------------------------------------------------

    async def schedule(self, job: Job) -> str:
        """Add a schedule, or change the one of that id: "added", "changed" or "kept".

        Where its cron and its zone are as before, so is the time of its next firing.
        """
        if not job.id:
            raise InvalidName("a schedule needs an id of its own, such as the job's name")
        now = self._binding.clock()
        asked = wanted(job.options.extra, now)
        if asked.cron is None or job.options.delay:
            raise InvalidOptions(f"schedule {job.id!r} needs a cron and takes no delay; give cron='…'")
        raw = codec.encode_raw(job, job.id, asked, now)
        answer: bytes = await self._store.run(
            SCRIPTS["schedule"],
            [*self._keys.fixed, self._keys.scheduler[2]],
            (*self._head(), self._binding.queue, job.id, raw, asked.next_fire, asked.cron.text,
             asked.cron.zone, job.name),
        )  # fmt: skip
        if answer == b"taken":
            raise InvalidName(f"job {job.id!r} exists and is no schedule; give the schedule another id")
        return answer.decode()

    async def unschedule(self, schedule_id: str) -> bool:
        """Delete a schedule; what it fired stays. Was there one?"""
        if await self._store.call("ZSCORE", self._keys.part("jobs:cron"), schedule_id) is None:
            return False
        return bool(await self.remove([schedule_id]))

    async def pause_schedule(self, schedule_id: str) -> bool:
        """No firings until it is resumed; what falls between is not made up for. Is there one?"""
        return await self._set_due(schedule_id, "+inf")

    async def resume_schedule(self, schedule_id: str) -> bool:
        """Firings again, from now on. Is there one?"""
        raw = await self._store.call("GET", self._keys.data(schedule_id))
        if raw is None:
            return False
        cron, _ = read_schedule(raw)
        return await self._set_due(schedule_id, cron.next_after(self._binding.clock()) or "+inf")

    async def _set_due(self, schedule_id: str, due: int | str) -> bool:
        names = [*self._keys.fixed, self._keys.scheduler[2]]
        return bool(await self._store.run(SCRIPTS["set_due"], names, (*self._head(), schedule_id, due)))

    async def run_now(self, schedule_id: str) -> str | None:
        """Fire a schedule once, besides its own times; the id of that job, or None: no such schedule."""
        raw = await self._store.call("GET", self._keys.data(schedule_id))
        if raw is None or await self._store.call("ZSCORE", self._keys.part("jobs:cron"), schedule_id) is None:
            return None
        now = self._binding.clock()
        job_id, firing = encode_firing(raw, schedule_id, now, now)
        await self._store.run(
            SCRIPTS["run_now"], self._keys.fixed, (*self._head(), job_id, firing, *describe(raw))
        )
        return job_id

    async def keep_events(self, count: int | None) -> None:
        """Keep about the last `count` events of this namespace, whoever writes them; None: as each says."""
        if count is None:
            await self._store.call("DEL", self._keys.part("events:kept"))
            return
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidOptions(f"{count!r} events cannot be kept; use a whole number from 1, or None")
        await self._store.call("SET", self._keys.part("events:kept"), count)

    # -- counters ---------------------------------------------------------------------------------------

    async def audit(self) -> list[tuple[str, int, int]]:
        """Set the concurrent counters right; (type, counted, really active) of those that were wrong."""
        return await audit(self._binding, self._keys, self._settings)


def _chooser(
    name: str | None, reason: str | None, since: int | None, until: int | None
) -> Callable[[Job], bool]:
    def is_chosen(job: Job) -> bool:
        died = job.finished_at or 0
        return (
            (name is None or job.name == name)
            and (reason is None or reason in (job.reason or ""))
            and (since is None or died >= since)
            and (until is None or died <= until)
        )

    return is_chosen
