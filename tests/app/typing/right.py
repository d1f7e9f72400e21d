"""What a type checker must accept; checked with mypy --strict by test_typing.py."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from corral import (
    Backoff,
    Corral,
    JobCall,
    JobContext,
    JobHandle,
    JobOutcome,
    Keep,
    Limit,
    ScheduleRule,
    SyncJobContext,
)
from corral.store.client import Reconnect


@dataclass
class Order:
    id: int
    total: float


@dataclass
class Receipt:
    number: int


class Resources:
    bank: str


app = Corral()


@app.job(queue="orders", attempts=5, timeout=timedelta(seconds=30))
async def charge(job: JobContext[Resources], order: Order) -> Receipt:
    assert_type(job.data, Any)
    await job.progress(50, "authorised")
    return Receipt(order.id)


@app.job
def thumbnail(file: str, width: int = 200) -> str:
    return f"{file}@{width}"


@app.job("shrink", backoff=timedelta(seconds=2))
def shrink(job: SyncJobContext[Resources], file: str) -> int:
    job.progress(1)
    return len(file)


@app.job
async def raw(job: JobContext[Resources]) -> int:
    return job.attempt


@app.job(data="whole")
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.job
async def nothing() -> None: ...


@app.job(queue="batches", batch=64, linger=timedelta(milliseconds=20), concurrency=2, limit=Limit(10, 1000))
async def charge_many(orders: list[Order]) -> list[Receipt]:
    return [Receipt(order.id) for order in orders]


@app.job(batch=64)
def charge_each(jobs: list[SyncJobContext[Resources]], orders: list[Order]) -> list[JobOutcome[Receipt]]:
    return [ValueError("no") if order.id == 0 else Receipt(order.id) for order in orders]


@app.job(batch=64)
async def gather_many(numbers: list[int]) -> list[str | BaseException]:
    return [str(number) for number in numbers]


@app.job(batch=64)
async def raw_many(jobs: list[JobContext[Resources]]) -> list[int]:
    return [job.attempt for job in jobs]


@app.job(batch=64)
def store_many(rows: list[int]) -> None: ...


@app.job
async def describe(size: int, unit: str = "cm") -> str:
    return f"{size} {unit}"


@app.job
async def report(job: JobContext[Resources], day: str) -> Receipt:
    assert_type(await job.children_results(charge), list[Receipt])
    assert_type(await job.children_results(thumbnail), list[str])
    assert_type(await job.children_results(), list[Any])
    return Receipt(len(day))


async def main() -> None:
    assert_type(await charge_many.add(Order(17, 9.5)), JobHandle[Receipt])
    assert_type(await charge_many.add_many(Order(n, 1.0) for n in range(3)), list[JobHandle[Receipt]])
    assert_type(charge_many.call(Order(17, 9.5)), JobCall[Receipt])
    assert_type(await charge_each.add(Order(17, 9.5)), JobHandle[Receipt])
    assert_type(await gather_many.add(5), JobHandle[str])
    assert_type(await raw_many.add({"any": "data"}), JobHandle[int])
    assert_type(await store_many.add(5), JobHandle[None])
    assert_type(await charge.add(Order(17, 9.5)), JobHandle[Receipt])
    assert_type(await charge.add(order=Order(17, 9.5)), JobHandle[Receipt])
    assert_type(await thumbnail.add("a.jpg", width=3), JobHandle[str])
    assert_type(await shrink.add("a.jpg"), JobHandle[int])
    assert_type(thumbnail.call("a.jpg"), JobCall[str])
    assert_type(await raw.add({"any": "data"}), JobHandle[int])
    assert_type(await total.add([1, 2]), JobHandle[int])
    assert_type(await nothing.add(), JobHandle[None])
    assert_type(await charge.add_many(Order(n, 1.0) for n in range(3)), list[JobHandle[Receipt]])
    assert_type(
        await thumbnail.add_many(thumbnail.call("a", width=n) for n in range(3)), list[JobHandle[str]]
    )
    assert_type(await raw.add_many([1, "two"]), list[JobHandle[int]])
    assert_type(await (await charge.add(Order(17, 9.5))).result(timeout=10), Receipt)
    await charge.options(delay=timedelta(minutes=5), priority=1, id="order-17").add(Order(18, 1.0))
    await app.queue("mail").add("send", {"to": "ada"}, delay=5, remove_on_complete=timedelta(days=1))
    app.schedule(nothing, cron="0 3 * * *", timezone="Europe/Berlin")
    app.schedule(thumbnail.call("a.jpg"), every=timedelta(seconds=30))
    app.workers(
        lock_ms=timedelta(seconds=30),
        heartbeat=timedelta(seconds=5),
        limit=Limit(100, timedelta(minutes=1)),
        keep_completed=Keep(count=10, age=timedelta(days=1)),
        reconnect=Reconnect(timedelta(milliseconds=50), most_ms=timedelta(seconds=10)),
    )
    await charge.options(backoff=Backoff("fixed", timedelta(seconds=5))).add(Order(18, 1.0))
    Corral(backoff=lambda made, kind, error, job: timedelta(seconds=made))
    ScheduleRule(every_ms=timedelta(hours=1))

    assert_type(thumbnail.call("a.jpg").then(shrink), JobCall[int])
    assert_type(shrink.call("a.jpg").then(describe, unit="px").then(thumbnail, width=3), JobCall[str])
    assert_type(charge.call(Order(1, 2.0)).then(raw), JobCall[int])
    report_flow = app.flow(report.call("monday"), children=[charge.call(Order(1, 2.0)), thumbnail.call("a")])
    assert_type(report_flow, JobCall[Receipt])
    assert_type(await app.flow(report.call("tuesday"), children=[report_flow]).add(), JobHandle[Receipt])
    assert_type(await (await report_flow.add()).result(), Receipt)
    await charge.options(unique=True, if_dead="ignore_dependency").add(Order(1, 2.0))
    await charge.options(unique={"key": "a", "period": timedelta(days=1)}).add(Order(1, 2.0))
    await charge.options(debounce=500).add(Order(1, 2.0))
