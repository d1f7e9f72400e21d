"""A job's parent and children."""

from typing import Any

from corral.bullmq.errors import told
from corral.bullmq.job_fields import JobFields
from corral.protocols.bullmq.children import KINDS


class Kinship(JobFields):
    """Whom a job waits for, and who waits for it; children go by the names of their keys."""

    async def getChildrenValues(self) -> dict[str, Any]:
        """The results of the children that completed."""
        return await self.queue.inspector.children_values(self.key)

    async def getIgnoredChildrenFailures(self) -> dict[str, str]:
        """Why children failed that this job goes on without."""
        return await self.queue.inspector.ignored_failures(self.key)

    async def getFailedChildrenValues(self) -> dict[str, str]:
        """Another name of `getIgnoredChildrenFailures`."""
        return await self.getIgnoredChildrenFailures()

    async def getDependencies(self, opts: dict[str, Any] | None = None) -> dict[str, Any]:
        """The children: completed with results, unprocessed, failed, and ignored with reasons.

        With `opts` a page of each kind that is named there, as `{"processed": {"cursor": 0, "count": 20}}`,
        and where the next page begins.
        """
        given = opts or {}
        asked = {kind: given[kind] for kind in KINDS if given.get(kind) not in (None, False)}
        if not asked:
            children = await self.queue.inspector.children(self.key)
            return {kind: getattr(children, kind) for kind in KINDS}
        found: dict[str, Any] = {}
        for kind, page in asked.items():
            wanted = {"cursor": 0, "count": 20, **(page if isinstance(page, dict) else {})}
            answer = await self.queue.inspector.children_page(self.key, kind, **wanted)
            named = kind in ("processed", "ignored")
            found[kind] = answer.children if named else list(answer.children)
            found[f"next{kind.capitalize()}Cursor"] = answer.cursor
        return found

    async def getDependenciesCount(self, opts: dict[str, Any] | None = None) -> dict[str, int]:
        """How many children of each kind there are; `opts` names the kinds."""
        asked = [kind for kind in KINDS if (opts or {}).get(kind)] or list(KINDS)
        return await self.queue.inspector.children_counts(self.key, asked)

    async def removeChildDependency(self) -> bool:
        """Let the parent wait for this job no more; False where it did not."""
        if self.parentKey is None:
            return False
        with told("removeChildDependency", job=self.key, parent=self.parentKey):
            done = await self.queue.operator.unbind(self.key, self.parentKey)
        if done:
            self.parent = self.parentKey = None
        return done

    async def removeUnprocessedChildren(self) -> None:
        """Delete the children that have not started."""
        await self.queue.operator.remove_unprocessed_children(self.key)
