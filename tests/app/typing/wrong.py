"""What a type checker must refuse: every line with the mark has the error it names; see test_typing.py."""

from datetime import timedelta

from corral import Corral
from tests.app.typing.right import (
    Order,
    Receipt,
    app,
    charge,
    charge_many,
    describe,
    nothing,
    raw,
    shrink,
    thumbnail,
    total,
)


@app.job
async def send(to: str) -> int:
    return len(to)


@app.job("post", queue="mail")
async def post(to: str) -> int:
    return len(to)


@app.job(queue="mail", atempts=5)  # error: call-overload untyped-decorator
async def one(to: str) -> None: ...


@app.job(queue="mail", timeout="5")  # error: call-overload untyped-decorator
async def two(to: str) -> None: ...


@app.job(batch="64")  # error: call-overload untyped-decorator
async def three(items: list[int]) -> list[int]:
    return items


@app.job(batch=64)  # error: arg-type
async def four(item: int) -> list[int]:
    return [item]


@app.job(batch=64)  # error: arg-type
async def five(items: list[int]) -> int:
    return 1


async def main() -> None:
    await charge_many.add([Order(1, 2.0)])  # error: arg-type
    await charge_many.add_many([1])  # error: list-item
    await charge.add(17)  # error: arg-type
    await charge.add()  # error: call-arg
    await charge.add(Order(1, 2.0), width=3)  # error: call-arg
    await charge.add(Order(1, 2.0), delay=5)  # error: call-arg
    await thumbnail.add("a", width="3")  # error: arg-type
    thumbnail.call(3)  # error: arg-type
    await send.add(3)  # error: arg-type
    await post.add(3)  # error: arg-type
    await total.add(["1"])  # error: list-item
    await raw.add(1, 2)  # error: call-arg
    await nothing.add(1)  # error: call-arg
    await charge.options(delay="5").add(Order(1, 2.0))  # error: arg-type
    await charge.options(attempts=timedelta(1)).add(Order(1, 2.0))  # error: arg-type
    await charge.options(prioritty=5).add(Order(1, 2.0))  # error: call-arg
    await charge.add_many([1, 2])  # error: list-item
    await charge.add_many([thumbnail.call("a")])  # error: list-item
    await app.queue("mail").add("send", {}, delay="5")  # error: arg-type
    await app.queue("mail").add_many([("send", {})], dealy=5)  # error: call-arg
    receipt: Receipt = (await thumbnail.add("a")).id  # error: assignment
    app.schedule(nothing, cron=5)  # error: arg-type
    app.schedule(nothing, every=timedelta(1), dealy=5)  # error: call-arg
    length: str = await (await send.add("a")).result()  # error: assignment
    Corral(retry_on=[5])  # error: list-item
    app.workers(lock_ms="5")  # error: arg-type
    await app.run(conccurrency=5)  # error: call-arg
    charge.call(Order(1, 2.0)).then(thumbnail)  # error: arg-type
    thumbnail.call("a").then(describe)  # error: arg-type
    thumbnail.call("a").then(nothing)  # error: arg-type
    shrink.call("a").then(describe, units="px")  # error: call-arg
    shrink.call("a").then(describe, unit=5)  # error: arg-type
    app.flow(charge, children=[])  # error: arg-type
    app.flow(nothing.call(), children=[charge])  # error: list-item
    await charge.options(if_dead="explode").add(Order(1, 2.0))  # error: arg-type
    await charge.options(unique=5).add(Order(1, 2.0))  # error: arg-type
    await charge.options(unique={"keys": "a"}).add(Order(1, 2.0))  # error: arg-type
    await charge.options(throttle="5").add(Order(1, 2.0))  # error: arg-type
    print(receipt, length)
