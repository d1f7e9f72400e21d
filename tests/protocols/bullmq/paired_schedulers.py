"""The two sides of one queue with schedulers: claims are made as a Worker makes them, next job and all."""

from collections.abc import Sequence
from typing import Any

from corral.protocols.bullmq.schedulers.job_schedulers import JobSchedulers
from tests.protocols.bullmq.paired_outcomes import PairedOutcome
from tests.protocols.bullmq.paired_queue import PairedQueue
from tests.support.node import NodeError


class PairedScheduledQueue(PairedQueue):
    """PairedQueue whose jobs are made by schedulers."""

    async def open(self) -> "PairedScheduledQueue":
        await super().open()
        self.schedulers = JobSchedulers(self.binding)
        return self

    async def _their_turn(
        self, endings: Sequence[PairedOutcome], want: int
    ) -> tuple[list[int | None], list[dict[str, Any]]]:
        # what moveToFinished fetches, this driver gives out as it is; a Worker goes on with it, as here
        assert not (endings and want), "settle first, then claim"
        codes, found = await super()._their_turn(endings, 0)
        while len(found) < want:
            token = f"node:{next(self._numbers)}"
            job = await self._node("getNextJob", worker="node-worker", token=token)
            if job is None:
                break
            self._tokens[job["id"]] = token
            found.append(job)
        return codes, found

    async def upsert(self, scheduler_id: str, repeat: dict[str, Any], **template: Any) -> str | None:
        """Create or change a scheduler; return the id of its next job, or None where neither has one."""
        theirs: str | None
        ours: Any
        try:
            job = await self.node_queue("upsertJobScheduler", scheduler_id, repeat, template)
            theirs = job and job["id"]
        except NodeError as error:
            theirs = f"refused {error.code}" if error.code else "refused"
        try:
            made = await self.schedulers.upsert(
                scheduler_id, repeat, name=template.get("name"), data=template.get("data"),
                options=template.get("opts"),
            )  # fmt: skip
            ours = made and made.id
        except ValueError as error:
            ours = f"refused {CODES[str(error).split()[2]]}" if "next" in str(error) else "refused"
        assert ours == theirs
        await self._check_same(f"upsert {scheduler_id} {repeat} {template}")
        return theirs

    def copy_from_node(self) -> None:
        """Copy to our side what only Node can write; both continue from there."""
        keys: Any = self._client.keys("node:*")
        for key in keys:
            self._client.copy(key, key.replace(b"node:", b"corral:", 1), replace=True)

    async def remove_scheduler(self, scheduler_id: str) -> bool:
        theirs = await self.node_queue("removeJobScheduler", scheduler_id)
        ours = await self.schedulers.remove(scheduler_id)
        assert ours == theirs
        await self._check_same(f"remove scheduler {scheduler_id}")
        return ours

    async def tick(self, ms: int) -> list[str]:
        """Let time pass, and claim the jobs that are due."""
        await self.advance(ms)
        claimed: list[str] = []
        # one by one, as Node does: the next job may be due by the time the one before it is claimed
        while len(claimed) < 9 and (found := await self.claim()):
            claimed += found
        return claimed


CODES = {"job": -10, "two": -11}
"""The third word of a busy scheduler's error -> Node's code."""
