"""Flows and chains: in every protocol that can, and refused in those that cannot."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from corral import (
    Added,
    Corral,
    InvalidArguments,
    InvalidOptions,
    Job,
    JobContext,
    JobFailed,
    JobState,
    JobType,
    SyncJobContext,
    Unsupported,
)
from corral.core.outcome import Completed
from corral.protocols import protocol_named, protocol_names
from corral.store.client import Store
from tests.support import flow_app
from tests.support.apps import reached, working
from tests.support.harness import QueueHarness
from tests.support.servers import Server

ABLE = [name for name in protocol_names() if "flows" not in protocol_named(name).spec.lacks]
UNABLE = [name for name in protocol_names() if name not in ABLE]


@pytest.fixture(params=ABLE)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def app(url: str, protocol: str) -> AsyncIterator[Corral]:
    async with Corral(url, protocol=protocol) as app:
        yield app


@dataclass
class Receipt:
    order: int
    paid: float


class Shop:
    """Job types of several queues, and what they did, in order."""

    def __init__(self, app: Corral) -> None:
        self.did: list[Any] = []

        @app.job(queue="orders", attempts=1)
        async def charge(order: int, broken: bool = False) -> Receipt:
            self.did.append(order)
            if broken:
                raise ValueError(f"order {order} is broken")
            return Receipt(order, order / 2)

        @app.job(queue="orders")
        async def pack(order: int) -> str:
            self.did.append(f"pack {order}")
            return f"parcel {order}"

        @app.job(queue="reports", attempts=1)
        async def report(job: JobContext, day: str) -> list[Any]:
            self.did.append(day)
            receipts = await job.children_results(charge)
            return [day, *[receipt.order for receipt in receipts], *await job.children_results(pack)]

        self.charge, self.pack, self.report = charge, pack, report


@pytest.fixture
def shop(app: Corral) -> Shop:
    return Shop(app)


async def test_a_parent_runs_after_its_children_and_has_their_results_in_order(
    app: Corral, shop: Shop
) -> None:
    children = [shop.charge.call(n) for n in range(30)]
    handle = await app.flow(shop.report.call("monday"), children=[*children, shop.pack.call(7)]).add()
    assert (handle.existed, handle.queue.name, handle.data) == (False, "reports", {"day": "monday"})
    assert await handle.state() is JobState.WAITING
    async with working(app):
        assert await handle.result(timeout=30) == ["monday", *range(30), "parcel 7"]
    assert shop.did[-1] == "monday"
    assert sorted(map(str, shop.did[:-1])) == sorted([*map(str, range(30)), "pack 7"])


async def test_flows_nest_to_any_depth(app: Corral, shop: Shop) -> None:
    tree = shop.charge.call(0)
    for level in range(60):
        tree = app.flow(shop.charge.call(level + 1), children=[tree, shop.pack.call(level)])
    handle = await app.flow(shop.report.call("all"), children=[tree]).add()
    async with working(app):
        assert await handle.result(timeout=30) == ["all", 60]
    charged = [order for order in shop.did if isinstance(order, int)]
    assert charged == list(range(61)), "each after those below it"


async def test_a_chain_passes_each_result_on_as_the_first_argument(app: Corral) -> None:
    @app.job
    async def halve(n: int) -> float:
        return n / 2

    @app.job(queue="other")
    def bill(job: SyncJobContext, amount: float, currency: str = "EUR", *, note: str = "") -> Receipt:
        assert job.children_results(halve) == [amount]
        return Receipt(len(note), amount)

    @app.job(data="whole")
    async def total(receipt: Receipt) -> dict[str, float]:
        return {"total": receipt.paid}

    @app.job
    async def raw(job: JobContext) -> Any:
        return [job.data, job.id]

    chain = halve.call(130775545883395172).then(bill, "USD", note="n").then(total).then(raw)
    handle = await chain.add()
    async with working(app):
        data, job_id = await handle.result(timeout=30)
    assert (data, job_id) == ({"total": 65387772941697586.0}, handle.id)


async def test_a_chain_may_be_long(app: Corral) -> None:
    @app.job
    async def count(n: int) -> int:
        return n + 1

    chain = count.call(0)
    for _ in range(99):
        chain = chain.then(count)
    handle = await chain.add()
    async with working(app):
        assert await handle.result(timeout=30) == 100
    for _ in range(1500):
        chain = chain.then(count)
    assert await (await chain.add()).state() is JobState.WAITING


async def test_a_result_of_the_wrong_type_is_refused_by_the_worker(app: Corral) -> None:
    @app.job
    async def text(n: int) -> Any:
        return "no number"

    @app.job
    async def double(n: int) -> int:
        return n * 2

    handle = await text.call(1).then(double).add()
    async with working(app):
        with pytest.raises(JobFailed) as failure:
            await handle.result(timeout=30)
    assert failure.value.reason == "the data of 'double' does not fit: n: Expected `int`, got `str`"


async def test_a_chain_can_be_a_child_and_a_flow_can_begin_a_chain(app: Corral, shop: Shop) -> None:
    @app.job
    async def shout(lines: list[Any]) -> str:
        return "!".join(map(str, lines))

    @app.job(queue="orders")
    async def refund(receipt: Receipt) -> str:
        return f"refund {receipt.order}"

    flow = app.flow(
        shop.report.call("friday"), children=[shop.charge.call(1).then(refund), shop.charge.call(2)]
    )
    handle = await flow.then(shout).add()
    async with working(app):
        assert await handle.result(timeout=30) == "friday!2"


POLICIES = [
    (None, JobState.DEAD),
    ("fail_parent", JobState.DEAD),
    ("ignore_dependency", JobState.COMPLETED),
    ("remove_dependency", JobState.COMPLETED),
]


@pytest.mark.parametrize(("if_dead", "state"), POLICIES)
async def test_what_a_parent_does_when_a_child_is_dead(
    app: Corral, shop: Shop, if_dead: Any, state: JobState
) -> None:
    charge = shop.charge if if_dead is None else shop.charge.options(if_dead=if_dead)
    children = [shop.charge.call(1), charge.call(2, broken=True), shop.pack.options(delay=100).call(3)]
    handle = await app.flow(shop.report.call("monday"), children=children).add()
    async with working(app):
        assert await handle.wait(timeout=30) is state
    kept = await handle.queue.flows.children(handle.id)
    if state is JobState.DEAD:
        job = await handle.queue.job(handle.id)
        assert job is not None
        assert job.reason == f"child {kept.failed[0]} failed"
        assert "monday" not in shop.did
        return
    assert list(kept.ignored.values()) == ([] if if_dead == "remove_dependency" else ["order 2 is broken"])
    assert shop.did[-1] == "monday", "after the others"
    assert await handle.result(timeout=30) == ["monday", 1, "parcel 3"]


async def test_a_parent_may_run_at_once_when_a_child_is_dead(app: Corral, shop: Shop) -> None:
    @app.job
    async def hurry(job: JobContext) -> list[str]:
        # what has not begun is deleted: a parent completes when no child is pending
        await hurry.queue.flows.remove_unprocessed(job.id)
        return list((await hurry.queue.flows.children(job.id)).ignored.values())

    broken = shop.charge.options(if_dead="continue_parent").call(2, broken=True)
    later = shop.pack.options(delay=3_600_000, id="later").call(3)
    handle = await app.flow(hurry.call(), children=[broken, later]).add()
    async with working(app):
        assert await handle.result(timeout=30) == ["order 2 is broken"]
    assert shop.did == [2]
    assert await shop.pack.queue.job("later") is None


async def test_a_parent_that_waits_for_a_dead_child_runs_once_that_is_replayed(app: Corral) -> None:
    is_broken = True

    @app.job(attempts=1)
    async def fragile(n: int) -> int:
        if is_broken:
            raise ValueError(n)
        return n

    @app.job
    async def double(n: int) -> int:
        return 2 * n

    handle = await fragile.options(if_dead="wait").call(4).then(double).add()
    [child] = (await handle.queue.flows.children(handle.id)).unprocessed
    child_id = child.rpartition(":")[2]
    async with working(app):
        await reached(fragile.queue, child_id, JobState.DEAD)
        assert await handle.state() is JobState.WAITING
        is_broken = False
        assert await fragile.queue.replay([child_id]) == [child_id]
        assert await handle.result(timeout=30) == 8


async def test_a_failure_goes_through_the_whole_chain(app: Corral, shop: Shop) -> None:
    @app.job
    async def never(receipt: Any) -> int:
        shop.did.append("never")
        return 1

    handle = await shop.charge.call(5, broken=True).then(never).then(never).then(never).add()
    async with working(app):
        with pytest.raises(JobFailed, match=r"child \S+ failed"):
            await handle.result(timeout=30)
    assert shop.did == [5]


async def test_the_children_of_a_handler_in_a_process(app: Corral, url: str) -> None:
    with flow_app.app.replaced(url=url):
        children = [flow_app.number.call(n) for n in (3, 1, 2)]
        parents = (flow_app.collect, flow_app.collect_async)
        async with working(flow_app.app):
            handles = [await flow_app.app.flow(parent.call(), children=children).add() for parent in parents]
            assert [await handle.result(timeout=30) for handle in handles] == [[3, 1, 2], [3, 1, 2]]
        await flow_app.app.close()


async def test_a_root_may_be_unique_and_a_child_may_not(app: Corral, shop: Shop) -> None:
    unique = shop.report.options(unique="monday")
    first = await app.flow(unique.call("monday"), children=[shop.charge.call(1)]).add()
    second = await app.flow(unique.call("again"), children=[shop.charge.call(2)]).add()
    assert (second.existed, second.id, second.data) == (True, first.id, {"day": "monday"})
    assert len(await shop.charge.queue.jobs(JobState.WAITING)) == 1, "nothing of the second was added"
    with pytest.raises(InvalidOptions, match="would wait for a job that was never added"):
        app.flow(shop.report.call("x"), children=[shop.charge.options(unique=True).call(1)])
    with pytest.raises(InvalidOptions, match=r"throttle=5.*\.options\(throttle=None\)"):
        shop.charge.options(throttle=5).call(1).then(shop.pack.options())  # type: ignore[arg-type]


async def test_layers_around_add_see_and_change_the_jobs_of_a_flow(app: Corral, shop: Shop) -> None:
    seen: list[str] = []

    @app.on_add
    async def doubled(jobs: Sequence[Job], call_next: Any) -> Sequence[Added]:
        seen.extend(job.name for job in jobs)
        changed = [
            replace(job, data={**job.data, "order": job.data["order"] * 2}) if "order" in job.data else job
            for job in jobs
        ]
        added: Sequence[Added] = await call_next(changed)
        assert [one.existed for one in added] == [False] * 3
        return added

    handle = await app.flow(
        shop.report.call("sunday"), children=[shop.charge.call(1), shop.charge.call(2)]
    ).add()
    assert seen == ["report", "charge", "charge"]
    async with working(app):
        assert await handle.result(timeout=30) == ["sunday", 2, 4]


async def test_what_is_no_flow_is_refused_and_nothing_is_written(
    app: Corral, shop: Shop, url: str, server: Server
) -> None:
    @app.job
    async def nothing() -> None: ...

    @app.job
    async def two(receipt: Receipt, other: int) -> None: ...

    other = Corral(url)

    @other.job
    async def foreign() -> None: ...

    with pytest.raises(InvalidOptions, match="no parameter to take a result"):
        shop.charge.call(1).then(nothing)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="other"):
        shop.charge.call(1).then(two)  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments, match="other: Expected `int`, got `str`"):
        shop.charge.call(1).then(two, "x")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptions, match="one app and one protocol"):
        app.flow(shop.report.call("x"), children=[foreign.call()])
    chain = shop.charge.call(1).then(two, 2)
    with pytest.raises(InvalidOptions, match="has jobs that run before it already"):
        app.flow(chain, children=[shop.charge.call(2)])
    with pytest.raises(InvalidOptions, match="a schedule adds single jobs"):
        app.schedule(chain, cron="0 3 * * *")
    with pytest.raises(InvalidOptions, match=r"add each by its own add\(\)"):
        await two.add_many([chain])
    with pytest.raises(InvalidOptions, match="if_dead is 'explode'; use 'fail_parent', 'continue_parent'"):
        app.job("x", if_dead="explode")  # type: ignore[call-overload]
    with server.connect() as client:
        assert client.dbsize() == 0


async def test_no_children_are_no_flow(app: Corral, shop: Shop) -> None:
    handle = await app.flow(shop.report.call("empty"), children=[]).add()
    plain = await shop.pack.call(1).add()
    async with working(app):
        assert await handle.result(timeout=30) == ["empty"]
        assert await plain.result(timeout=30) == "parcel 1"


@pytest.mark.parametrize("protocol", UNABLE)
async def test_a_protocol_without_flows_says_so(url: str, protocol: str, server: Server) -> None:
    words = f"protocol {protocol!r} has no flows; use a protocol that has it"
    async with Corral(url, protocol=protocol) as app:

        @app.job("tool")
        async def work(job: JobContext, n: int = 0) -> int:
            with pytest.raises(Unsupported, match="has no flows"):
                await job.children_results()
            return n

        work_type: JobType[[int], int] = work
        with pytest.raises(Unsupported) as refusal:
            app.flow(work.call(1), children=[work.call(2)])
        assert str(refusal.value) == words
        with pytest.raises(Unsupported) as refusal:
            work.call(1).then(work_type)
        assert str(refusal.value) == words
        with pytest.raises(InvalidOptions, match="there is no option 'if_dead'"):
            await work.options(if_dead="wait").add(1)
        with server.connect() as client:
            assert client.dbsize() == 0
        async with working(app):
            assert await (await work.add(3)).result(timeout=30) == 3


async def test_a_lost_claim_of_a_chains_job_is_adopted_with_the_result(
    app: Corral, store: Store, protocol: str
) -> None:
    @app.job
    async def double(n: int) -> int:
        return 2 * n

    await double.call(130775545883395173).then(double).add()
    async with QueueHarness(protocol, store) as harness:
        broker = harness.broker()
        first = await harness.claim(broker)
        [second] = (await broker.turn([harness.settle(first, Completed(b"[7]"))], 1)).claims
        assert (first.job.data, second.job.data) == ({"n": 130775545883395173}, {"n": [7]})
        [adopted] = (await broker.recover(owner=second.receipt)).claims
        assert (adopted.job.id, adopted.job.data) == (second.job.id, {"n": [7]})
