"""Many hands on one streams queue, in any order: no job is lost, none ends twice."""

from collections import Counter
from random import Random

import pytest
import redis

from corral.core.job import Claim, Job
from corral.core.outcome import Completed, Dead, Outcome, Released, Settlement
from corral.core.ports import Profile, RestReason
from corral.protocols.base import Binding
from corral.protocols.streams.broker import StreamsBroker
from corral.protocols.streams.operator import StreamsOperator
from corral.store.client import Store
from tests.support.foreign_client_streams import (
    TERMINAL,
    ForeignGateway,
    ForeignWorker,
    make_old,
    now_ms,
    pending,
    story,
)
from tests.support.jobs import submit


class Walk:
    """Two workers of ours and a stranger, each free to die; the accepted endings are counted."""

    def __init__(self, store: Store, client: redis.Redis, random: Random) -> None:
        self.client = client
        self.random = random
        profile = {"extra": {"stranger_idle_ms": 60_000, "max_deliveries": 4}}
        places = [Binding(store, "jobs", "", now_ms, Profile(name=f"w{n}", **profile)) for n in range(2)]
        self.brokers = [StreamsBroker(place) for place in places]
        self.operator = StreamsOperator(places[0])
        self.stranger = ForeignWorker(client)
        self.gateway = ForeignGateway(client)
        self.ids: list[str] = []
        self.expired: set[str] = set()
        self.held: list[tuple[StreamsBroker, Claim]] = []
        self.late: list[tuple[StreamsBroker, Claim]] = []
        self.ended: Counter[str] = Counter()

    async def submit(self) -> None:
        count = self.random.randrange(1, 6)
        jobs = [Job(name="chat", data={"n": n}, queue="jobs") for n in range(count)]
        self.ids += await submit(self.random.choice(self.brokers), jobs)
        self.ids.append(self.gateway.create("chat", {}))

    async def claim(self) -> None:
        broker = self.random.choice(self.brokers)
        self.held += [
            (broker, claim) for claim in (await broker.turn([], self.random.randrange(1, 5))).claims
        ]

    async def settle(self) -> None:
        self.random.shuffle(self.held)
        outcomes: list[Outcome] = [Completed(b"1"), Completed(b"2"), Dead("x"), Released()]
        for broker in self.brokers:
            mine = [pair for pair in self.held if pair[0] is broker][:3]
            self.held = [pair for pair in self.held if pair not in mine]
            await self.end(broker, [claim for _, claim in mine], self.random.choice(outcomes))

    async def end(self, broker: StreamsBroker, claims: list[Claim], outcome: Outcome) -> None:
        turn = await broker.turn([Settlement(claim, outcome, now_ms()) for claim in claims], 0)
        if not isinstance(outcome, Released):
            self.ended.update(
                claim.job.id for claim, verdict in zip(claims, turn.verdicts, strict=True) if verdict is None
            )

    async def fall_silent(self) -> None:
        """Some claims look abandoned; their holder wakes up later and tries to end them all the same."""
        still_ours = {entry for entry, _, _ in pending(self.client)}
        for pair in self.held[:2]:
            if pair[1].receipt.entry in still_ours:
                make_old(self.client, pair[1].receipt.entry)
                self.late.append(pair)
                self.held.remove(pair)

    async def wake_up(self) -> None:
        for broker, claim in self.late:
            await self.end(broker, [claim], Completed(b'"late"'))
        self.late.clear()

    async def recover(self) -> None:
        self.ended.update((await self.random.choice(self.brokers).recover()).ended)

    async def stranger_works(self) -> None:
        self.ended.update(self.stranger.work(lambda task, payload: 1, 2))

    async def stranger_dies(self) -> None:
        for entry, fields in self.stranger.take():
            self.stranger.start(fields[b"job_id"].decode())
            make_old(self.client, entry)

    async def cancel(self) -> None:
        if self.ids:
            self.ended.update(await self.operator.cancel([self.random.choice(self.ids)]))

    async def expire(self) -> None:
        job_id = self.random.choice(self.ids) if self.ids else ""
        if job_id and not self.ended[job_id]:
            self.client.delete(f"job:{job_id}", f"job:{job_id}:events", f"job:{job_id}:deliveries")
            self.expired.add(job_id)

    async def renew(self) -> None:
        for broker in self.brokers:
            mine = [claim for owner, claim in self.held if owner is broker]
            extension = await broker.extend(mine)
            gone = [*extension.lost, *extension.cancelled]
            self.held = [pair for pair in self.held if pair[1] not in gone]

    async def finish(self) -> None:
        await self.wake_up()
        for broker, claim in self.held:
            await self.end(broker, [claim], Completed())
        while True:
            for entry, _, _ in pending(self.client):
                make_old(self.client, entry)
            await self.recover()
            turn = await self.brokers[0].turn([], 50)
            await self.end(self.brokers[0], list(turn.claims), Completed())
            if not turn.claims and turn.rest.reason is RestReason.DRAINED and not pending(self.client):
                return


@pytest.mark.parametrize("seed", range(12))
async def test_no_job_is_lost_and_none_ends_twice(store, client, seed) -> None:
    walk = Walk(store, client, Random(seed))
    steps = [walk.submit, walk.claim, walk.claim, walk.settle, walk.settle, walk.renew]
    steps += [walk.fall_silent, walk.wake_up, walk.recover]
    # a stranger runs what was cancelled and revives what has expired, as the contract lets it
    has_strangers = seed % 2 == 0
    steps += [walk.stranger_works, walk.stranger_dies] if has_strangers else [walk.cancel, walk.expire]
    for _ in range(150):
        await walk.random.choice(steps)()
    await walk.finish()

    assert len(walk.ids) > 10
    assert max(walk.ended.values()) == 1, "an end is accepted once"
    for job_id in walk.ids:
        if job_id in walk.expired:
            assert not client.exists(f"job:{job_id}", f"job:{job_id}:events", f"job:{job_id}:deliveries")
            continue
        endings = [kind for kind in story(client, job_id) if kind in TERMINAL]
        assert len(endings) == 1, (job_id, story(client, job_id))
        assert client.hget(f"job:{job_id}", "status") == endings[0].encode()
        assert walk.ended[job_id] == 1
    assert all(client.ttl(key) > 0 for key in client.scan_iter("job:*"))
    assert has_strangers or client.keys("job:*:deliveries") == []
