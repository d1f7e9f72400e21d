"""Typed jobs: arguments by name, checked where they are added and where they are run."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from corral import (
    Corral,
    InvalidArguments,
    InvalidName,
    InvalidOptions,
    JobContext,
    JobState,
    Keep,
    SyncJobContext,
)
from tests.support import handlers
from tests.support.apps import ended, working


@dataclass
class Order:
    id: int
    total: float


@dataclass
class Receipt:
    order: int
    paid: Decimal


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


PROTOCOLS = pytest.mark.parametrize("protocol", ["bullmq", "streams", "bridgemq"])


@PROTOCOLS
async def test_arguments_are_written_by_name_and_arrive_as_their_types(app: Corral, protocol: str) -> None:
    @app.job("tool", protocol=protocol)
    async def charge(job: JobContext, order: Order, tip: Decimal = Decimal(0)) -> Receipt:
        assert isinstance(order, Order)
        await job.progress(50, "authorised")
        return Receipt(order.id, Decimal(str(order.total)) + tip)

    async with working(app):
        handle = await charge.add(Order(17, 9.5), tip=Decimal("0.5"))
        assert handle.data == {"order": {"id": 17, "total": 9.5}, "tip": "0.5"}
        job = await ended(charge.queue, handle.id)
    assert (job.state, job.result) == (JobState.COMPLETED, {"order": 17, "paid": "10.0"})
    assert not handle.existed


async def test_without_parentheses_the_name_is_the_functions(app: Corral) -> None:
    @app.job
    def thumbnail(file: str, width: int = 200) -> str:
        return f"{file}@{width}"

    @app.job
    def shrink(job: SyncJobContext, file: str) -> str:
        job.log(file)
        return file

    async with working(app):
        small = await ended(thumbnail.queue, (await thumbnail.add("a.jpg")).id)
        shrunk = await ended(shrink.queue, (await shrink.add(file="b.jpg")).id)
    assert (thumbnail.name, small.name, small.result) == ("thumbnail", "thumbnail", "a.jpg@200")
    assert (shrunk.result, await shrink.queue.logs(shrunk.id)) == ("b.jpg", ["b.jpg"])


async def test_a_typed_handler_runs_in_a_process(app: Corral) -> None:
    describe = app.job("describe", process=True)(handlers.describe_order)
    async with working(app):
        job = await ended(describe.queue, (await describe.add(handlers.ProcessOrder(3), times=2)).id)
    assert (job.result, job.reason) == ({"text": "order 3, order 3"}, None)


@PROTOCOLS
async def test_data_that_does_not_fit_is_dead_and_refused_with_the_same_words(
    app: Corral, url: str, protocol: str
) -> None:
    ran: list[Order] = []

    @app.job("tool", protocol=protocol)
    async def charge(order: Order) -> None:
        ran.append(order)

    wrong = {"order": {"id": "17", "total": 9.5}}
    bad: Any = Order("17", 9.5)  # type: ignore[arg-type]
    words = "the data of 'tool' does not fit: order.id: Expected `int`, got `str`"
    with pytest.raises(InvalidArguments) as refusal:
        await charge.add(bad)
    assert str(refusal.value) == words
    with pytest.raises(InvalidArguments) as refusal:
        await charge.queue.add("tool", wrong)
    assert str(refusal.value) == words
    async with Corral(url) as stranger, working(app):
        added = await stranger.queue(charge.queue.name, protocol).add("tool", wrong)
        job = await ended(charge.queue, added.id)
    assert (job.state, job.reason, ran) == (JobState.DEAD, words, [])
    assert job.attempts_made == 1, "another attempt could not help"


async def test_the_whole_data_may_be_a_list_or_text(app: Corral) -> None:
    @app.job(data="whole")
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.job(data="whole")
    async def shout(job: JobContext, text: str) -> str:
        return text.upper()

    async with working(app):
        assert (await ended(total.queue, (await total.add([1, 2])).id)).result == 3
        assert (await ended(shout.queue, (await shout.add("moo")).id)).result == "MOO"


async def test_options_are_given_beside_the_arguments(app: Corral) -> None:
    @app.job(attempts=5, priority=9, backoff=timedelta(seconds=2))
    async def charge(order: Order, id: str = "", delay: int = 0) -> None: ...

    later = charge.options(delay=timedelta(minutes=5), priority=1, id="order-17")
    handle = await later.add(Order(17, 9.5), id="an argument", delay=3)
    options = handle.job.options
    assert (handle.id, handle.data["id"], handle.data["delay"]) == ("order-17", "an argument", 3)
    assert (options.delay, options.priority, options.attempts) == (300_000, 1, 5)
    assert options.backoff is not None
    assert options.backoff.delay == 2000
    assert (await charge.add(Order(1, 1.0))).job.options.priority == 9, "the job type itself is as before"


async def test_many_are_added_by_their_first_argument_or_by_calls(app: Corral) -> None:
    @app.job(queue="many", attempts=4)
    async def thumbnail(file: str, width: int = 200) -> None: ...

    plain = await thumbnail.add_many(f"{n}.jpg" for n in range(2000))
    calls = [thumbnail.call("a.jpg", width=3), thumbnail.options(attempts=2).call("b.jpg")]
    called = await thumbnail.add_many(calls)
    assert [handle.id for handle in plain] == [str(n) for n in range(1, 2001)]
    assert plain[7].data == {"file": "7.jpg"}
    jobs = [await thumbnail.queue.job(handle.id) for handle in called]
    assert [(job.data, job.options.attempts) for job in jobs if job] == [
        ({"file": "a.jpg", "width": 3}, 4),
        ({"file": "b.jpg"}, 2),
    ]


async def test_a_list_with_one_wrong_argument_writes_nothing(app: Corral) -> None:
    @app.job(queue="many")
    async def thumbnail(file: str) -> None: ...

    @app.job(queue="many")
    async def other(file: str) -> None: ...

    wrong: Any = ["a", 5]
    with pytest.raises(InvalidArguments, match=r"'thumbnail' does not fit: file: Expected `str`"):
        await thumbnail.add_many(wrong)
    with pytest.raises(InvalidOptions, match="a call of 'other' is among those of 'thumbnail'"):
        await thumbnail.add_many([other.call("a")])
    with pytest.raises(InvalidOptions, match="id='x' is for one job"):
        await thumbnail.options(id="x").add_many(["a", "b"])
    assert (await thumbnail.queue.counts())[JobState.WAITING] == 0


async def test_a_job_added_by_name_has_the_options_of_its_handler(app: Corral) -> None:
    @app.job("send", queue="mail", attempts=7, remove_on_complete=timedelta(hours=1))
    async def send(to: str) -> None: ...

    queue = app.queue("mail")
    one = await queue.add("send", {"to": "ada"}, priority=3)
    [two] = await queue.add_many([("send", {"to": "ada"})], attempts=2)
    [three] = await queue.add_many([("send", {"to": "ada"}, {"attempts": 3})])
    other = await queue.add("other", {"to": 3})
    jobs = [await queue.job(job_id) for job_id in (one.id, two, three, other.id)]
    assert [job.options.attempts for job in jobs if job] == [7, 2, 3, 3]
    assert one.job.options.keep_completed == Keep(age=3600)
    with pytest.raises(InvalidArguments, match="job 1 of this call: the data of 'send' does not fit: to"):
        await queue.add_many([("send", {"to": "ada"}), ("send", {"to": 5})])


async def test_a_job_that_was_there_gives_its_stored_data(app: Corral) -> None:
    @app.job(queue="mail")
    async def send(to: str) -> None: ...

    first = await send.options(id="order-7").add("ada")
    second = await send.options(id="order-7").add("grace")
    assert (first.existed, first.data) == (False, {"to": "ada"})
    assert (second.existed, second.data, second.id) == (True, {"to": "ada"}, "order-7")


async def test_a_schedule_takes_a_job_type_or_a_call(app: Corral) -> None:
    @app.job(queue="reports", attempts=2)
    async def report(day: str = "today") -> None: ...

    nightly = app.schedule(report, cron="0 3 * * *", timezone="Europe/Berlin")
    weekly = app.schedule(report.call("monday"), every=timedelta(days=7), id="weekly")
    assert (nightly.id, nightly.job.data, nightly.job.options.attempts) == ("report", {}, 2)
    assert (weekly.job.data, weekly.rule.every_ms) == ({"day": "monday"}, 7 * 86_400_000)
    with pytest.raises(InvalidArguments, match="'report' does not fit: day: Expected `str`"):
        app.schedule(report, {"day": 5}, cron="@daily", id="wrong")


async def test_a_name_its_protocol_does_not_allow_is_refused_where_it_is_written(app: Corral) -> None:
    with pytest.raises(InvalidName, match="protocol 'streams' has no task 'thumbnail'; use one of chat"):

        @app.job(protocol="streams")
        def thumbnail(file: str) -> None: ...

    with pytest.raises(InvalidName, match="job name"):

        @app.job("two\nlines")
        def lines(file: str) -> None: ...

    wrong: Any = 5
    with pytest.raises(InvalidOptions, match="the handler 5 is no function"):
        app.job(wrong)


async def test_a_typed_handler_is_still_the_function(app: Corral) -> None:
    @app.job
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    assert double(21) == 42
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
