"""The same calls through Node and through Corral, on two prefixes of one server, compared at each step."""

import itertools
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from corral.core.job import Claim, Job
from corral.core.outcome import Settlement
from corral.core.ports import Limit
from corral.protocols.base import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.flows import BullmqFlows
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.keys import GENERATIONS
from corral.protocols.bullmq.operator import BullmqOperator
from corral.protocols.bullmq.reporter import BullmqReporter
from corral.protocols.bullmq.scripts import ERRORS
from corral.store.client import Store
from tests.protocols.bullmq.node_options import options_of, profile_of
from tests.protocols.bullmq.paired_outcomes import Done, Failed, PairedOutcome, Postpone, Release
from tests.support.compare import differences
from tests.support.jobs import submit
from tests.support.keyspace import look
from tests.support.node import Node, NodeError
from tests.support.servers import Server

BEGIN = 1_760_000_000_000
STEP_MS = 7
CODES = {error: code for code, error in ERRORS.items()}
"""Our refusals -> Node's codes."""

DIFFERENT = "Corral leaves another state than Node:\n  "


class PairedQueue:
    """One queue twice: `node:<queue>:` is Node's, `corral:<queue>:` is ours.

    Every verb runs on both sides with the same clock, returns what both agree on, and compares the keyspaces.
    `options` are those of a Node Worker; Corral's worker gets the same.
    """

    def __init__(self, node: Node, server: Server, store: Store, queue: str = "mail", **options: Any) -> None:
        self.queue = queue
        self.now = BEGIN
        self.checks = 0
        self._node, self._server = node, server
        self._client = server.connect()
        self._options = options
        self._numbers = itertools.count(1)
        self._tokens: dict[str, str] = {}
        self._claims: dict[str, Claim] = {}
        self._disowned: set[str] = set()
        self.profile = profile_of(options)
        generation = node.generation if node.generation > GENERATIONS[0] else None
        binding = Binding(store, queue, "corral", lambda: self.now, self.profile, generation)
        self.binding = binding
        self.broker = BullmqBroker(binding)
        self.reporter = BullmqReporter(binding)
        self.inspector = BullmqInspector(binding)
        self.flows = BullmqFlows(binding)
        self.operator = BullmqOperator(binding)

    async def open(self) -> "PairedQueue":
        where = {"name": self.queue, "url": self._server.url}
        await self._node("openQueue", handle="node-queue", prefix="node", **where, opts={})
        await self._node(
            "openWorker", handle="node-worker", prefix="node", **where, opts={"name": "anna", **self._options}
        )
        await self._tell()
        return self

    async def close(self) -> None:
        await self.broker.close()
        await self._node("closeAll")
        self._client.close()

    @property
    def is_six(self) -> bool:
        """Whether both sides are of BullMQ 6."""
        return self._node.generation == 6

    @property
    def paused_list(self) -> str:
        """The list of those that wait while the queue is paused."""
        return "wait" if self.is_six else "paused"

    # -- time ------------------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        await self._node("clock", now=self.now)

    async def advance(self, ms: int) -> None:
        """Let time pass on both sides."""
        self.now += ms
        await self._tell()

    def forget(self, *names: str) -> None:
        """Delete keys on both sides, as their time to live would."""
        for prefix in ("node", "corral"):
            self._client.delete(*(f"{prefix}:{self.queue}:{name}" for name in names))

    def expire_locks(self, *ids: str) -> None:
        """The workers that held these jobs are gone."""
        self.forget(*(f"{job_id}:lock" for job_id in ids))

    def abandon(self, job_id: str) -> None:
        """The worker that held this job is gone, and its lock has run out."""
        self.expire_locks(job_id)
        del self._tokens[job_id], self._claims[job_id]

    def take_markers(self) -> None:
        """An idle worker on each side has been woken."""
        self.forget("marker")

    def plant(self, *command: Any) -> None:
        """Run one plain command on both sides; its second argument is the name of a key."""
        for prefix in ("node", "corral"):
            key = f"{prefix}:{self.queue}:{command[1]}"
            self._client.execute_command(command[0], key, *command[2:])  # type: ignore[no-untyped-call]

    def disown(self, *ids: str) -> None:
        """Expect other lock values than ours: another worker holds these jobs."""
        self._disowned.update(ids)

    # -- comparing -------------------------------------------------------------------------------------------

    def different(self) -> list[str]:
        theirs, ours = look(self._client, f"node:{self.queue}:", f"corral:{self.queue}:")
        receipts = {job_id: str(claim.receipt) for job_id, claim in self._claims.items()}
        for job_id in self._disowned:
            theirs.pop(f"{job_id}:lock", None)
            ours.pop(f"{job_id}:lock", None)
        return differences(theirs, ours, receipts=(self._tokens, receipts))

    async def _check_same(self, what: str) -> None:
        found = self.different()
        assert not found, f"after {what}: " + DIFFERENT + "\n  ".join(found[:20])
        self.checks += 1
        await self.advance(STEP_MS)

    def events(self) -> list[str]:
        """Return the names of all events so far (the same on both sides)."""
        stream = look(self._client, f"corral:{self.queue}:")[0].get("events")
        return [dict(fields)["event"].decode() for _, fields in stream.value] if stream else []

    def entry(self, name: str) -> Any:
        """Return a key's value (the same on both sides), or None."""
        found = look(self._client, f"corral:{self.queue}:")[0].get(name)
        return found and found.value

    # -- producing -------------------------------------------------------------------------------------------

    async def add(self, name: str = "send", data: Any = None, **opts: Any) -> str:
        return (await self.add_many([(name, {} if data is None else data, opts)]))[0]

    async def add_many(self, rows: Sequence[tuple[str, Any, dict[str, Any]]]) -> list[str]:
        jobs = [{"name": name, "data": data, "opts": opts} for name, data, opts in rows]
        theirs = [job["id"] for job in await self._node("addBulk", queue="node-queue", jobs=jobs)]
        ours = await submit(self.broker, [self._job(*row) for row in rows])
        assert ours == theirs
        await self._check_same(f"add {rows}")
        return ours

    def _job(self, name: str, data: Any, opts: dict[str, Any]) -> Job:
        return Job(name=name, data=data, queue=self.queue, id=opts.get("jobId", ""), options=options_of(opts),
                   created_at=self.now)  # fmt: skip

    # -- working ---------------------------------------------------------------------------------------------

    async def claim(self, want: int = 1) -> list[str]:
        return await self.turn([], want)

    async def turn(self, endings: Sequence[PairedOutcome], want: int = 0) -> list[str]:
        """Settle, then claim up to `want`; the ids claimed. What one side refuses, the other must too."""
        codes, theirs = await self._their_turn(endings, want)
        held = [self._claims.pop(ending.job_id) for ending in endings]
        settlements = [Settlement(claim, ending.outcome(claim.job), self.now)
                       for claim, ending in zip(held, endings, strict=True)]  # fmt: skip
        answer = await self.broker.turn(settlements, want)
        assert [verdict and CODES[type(verdict)] for verdict in answer.verdicts] == codes
        for claim in answer.claims:
            self._claims[claim.job.id] = claim
        ours = [claim.job.id for claim in answer.claims]
        assert ours == [job["id"] for job in theirs]
        for claim, job in zip(answer.claims, theirs, strict=True):
            assert_same_job(claim.job, job)
        await self._check_same(f"turn {endings} want {want}")
        return ours

    async def _their_turn(
        self, endings: Sequence[PairedOutcome], want: int
    ) -> tuple[list[int | None], list[dict[str, Any]]]:
        # one Node call settles one job, and only the last of them may fetch the next
        codes: list[int | None] = []
        found: list[dict[str, Any]] = []
        for place, ending in enumerate(endings, 1):
            token = self._tokens.pop(ending.job_id)
            try:
                following = await ending.in_node(self._node, token, want > 0 and place == len(endings))
                codes.append(None)
            except NodeError as error:
                following = None
                codes.append(error.code)
            if following is not None:
                self._tokens[following["id"]] = token
                found.append(following)
        while len(found) < want:
            token = f"node:{next(self._numbers)}"
            job = (await self._node("moveToActive", worker="node-worker", token=token))["job"]
            if job is None:
                break
            self._tokens[job["id"]] = token
            found.append(job)
        return codes, found

    async def complete(self, job_id: str, *result: Any, want: int = 0) -> list[str]:
        return await self.turn([Done(job_id, *result)], want)

    async def fail(self, job_id: str, reason: str = "no luck", want: int = 0, **how: Any) -> list[str]:
        return await self.turn([Failed(job_id, reason, **how)], want)

    async def postpone(self, job_id: str, delay: int) -> None:
        await self.turn([Postpone(job_id, delay, self.now)])

    async def release(self, job_id: str) -> None:
        await self.turn([Release(job_id)])

    async def extend(self, *ids: str) -> None:
        for job_id in ids:
            await self._node("claimed", worker="node-worker", id=job_id, method="extendLock",
                             args=[self._tokens[job_id], self.profile.lock_ms])  # fmt: skip
        found = await self.broker.extend([self._claims[job_id] for job_id in ids])
        assert not found.lost
        await self._check_same(f"extend {ids}")

    async def sweep(self) -> list[str]:
        """One look for stalled jobs, the throttle of the last one having passed."""
        self.forget("stalled-check")
        theirs = await self._node("moveStalledJobsToWait", worker="node-worker")
        ours = list((await self.broker.recover()).requeued)
        assert ours == theirs
        for job_id in ours:
            self._tokens.pop(job_id, None)
            self._claims.pop(job_id, None)
        await self._check_same("sweep")
        return ours

    def held(self) -> list[str]:
        """Return the ids of all claimed jobs, in order."""
        return list(self._claims)

    def claimed(self, job_id: str) -> Job:
        """Return a claimed job."""
        return self._claims[job_id].job

    # -- reports of a handler--------------------------------------------------------------------------------

    async def progress(self, job_id: str, value: Any) -> None:
        await self._node("claimed", worker="node-worker", id=job_id, method="updateProgress", args=[value])
        await self.reporter.progress(self._claims[job_id], value)
        await self._check_same(f"progress {value}")

    async def log(self, job_id: str, line: str) -> int:
        theirs = await self._node("claimed", worker="node-worker", id=job_id, method="log", args=[line])
        ours = await self.reporter.log(self._claims[job_id], line)
        assert ours == theirs
        await self._check_same(f"log {line}")
        return ours

    # -- operating -------------------------------------------------------------------------------------------

    async def node_queue(self, method: str, *args: Any) -> Any:
        """What a method of Node's Queue gives, on Node's side alone."""
        return await self._node("queue", handle="node-queue", method=method, args=list(args))

    async def pause(self) -> None:
        await self._node("queue", handle="node-queue", method="pause")
        await self.operator.pause()
        await self._check_same("pause")

    async def resume(self) -> None:
        await self._node("queue", handle="node-queue", method="resume")
        await self.operator.resume()
        await self._check_same("resume")

    async def set_concurrency(self, count: int | None) -> None:
        method = "removeGlobalConcurrency" if count is None else "setGlobalConcurrency"
        await self._node("queue", handle="node-queue", method=method, args=[count])
        await self.operator.set_concurrency(count)
        await self._check_same(f"concurrency {count}")

    async def set_limit(self, limit: Limit | None) -> None:
        method = "removeGlobalRateLimit" if limit is None else "setGlobalRateLimit"
        args = [] if limit is None else [limit.count, limit.duration]
        await self._node("queue", handle="node-queue", method=method, args=args)
        await self.operator.set_rate(limit)
        await self._check_same(f"limit {limit}")

    async def hold(self, duration: int) -> None:
        await self._node("queue", handle="node-queue", method="rateLimit", args=[duration])
        await self.operator.block_claims(duration)
        await self._check_same(f"hold {duration}")

    async def retry(self, job_id: str) -> bool:
        # Node needs the job's state; we look it up
        ended = [member for member, _ in self.entry("completed") or ()]
        state = "completed" if job_id.encode() in ended else "failed"
        return await self._one("retry", job_id, self.operator.retry, [state])

    async def promote(self, job_id: str) -> bool:
        return await self._one("promote", job_id, self.operator.promote, [])

    async def remove(self, job_id: str) -> bool:
        return await self._one("remove", job_id, self.operator.remove, [])

    async def _one(
        self, method: str, job_id: str, ours: Callable[[Sequence[str]], Awaitable[list[str]]], args: list[Any]
    ) -> bool:
        try:
            await self._node("job", queue="node-queue", id=job_id, method=method, args=args)
            done = True
        except NodeError:
            done = False
        assert await ours([job_id]) == ([job_id] if done else [])
        await self._check_same(f"{method} {job_id}")
        return done


def assert_same_job(ours: Job, theirs: dict[str, Any]) -> None:
    """Compare a claimed job in both languages."""
    assert ours.name == theirs["name"]
    assert _as_javascript(ours.data) == _as_javascript(theirs["data"])
    assert ours.attempts_made == theirs["attemptsMade"]
    assert ours.starts == theirs["attemptsStarted"]
    assert ours.stalls == theirs["stalledCounter"]
    assert ours.created_at == theirs["timestamp"]
    assert ours.started_at == theirs["processedOn"]
    # a parent holds the key of the child that failed it, with its side's own prefix
    assert (ours.doomed or "").replace("corral:", "node:") == (theirs.get("deferredFailure") or "")
    assert ours.options.attempts == theirs["opts"]["attempts"]


def _as_javascript(data: Any) -> Any:
    """The data as Node can see it, where every number is a double."""
    return json.loads(json.dumps(data), parse_int=float)
