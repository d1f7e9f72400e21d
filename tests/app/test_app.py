"""The native API for producers, as its users meet it: decorators, add, add_many, defaults."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import orjson
import pytest

from corral import (
    Backoff,
    Corral,
    InvalidOptions,
    JobState,
    Keep,
    Unsupported,
)
from corral.core.schema import event_schema, payload_schema
from corral.errors import UnknownProtocol
from tests.support.apps import ended, working
from tests.support.polling import becomes_true
from tests.support.servers import Server


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


# -- where it works ------------------------------------------------------------------------------------------


async def test_the_example_of_the_docstring_runs(app: Corral) -> None:
    @app.job("send-email", queue="mail", attempts=5, timeout=30)
    async def send_email(job: Any) -> str:
        return f"to {job.data['to']}"

    async with working(app, concurrency=50):
        job = await send_email.add({"to": "a@b.c"})
        assert (await ended(send_email.queue, job.id)).result == "to a@b.c"


async def test_without_an_address_the_environment_says_where(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    async with Corral() as app:
        assert app.url == server.url
        await app.queue("mail").add("greet")
    with server.connect() as client:
        assert client.exists("bull:mail:1")


async def test_without_any_address_a_private_server_is_started_and_shared_by_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    async with Corral(folder=tmp_path / "data") as app, Corral(folder=tmp_path / "data") as other:
        job = await app.queue("mail").add("greet", {"name": "Ada"})
        assert app.url.startswith("unix://")
        found = await other.queue("mail").job(job.id)
        assert found is not None
        assert found.data == {"name": "Ada"}


async def test_a_protocol_that_is_not_there_is_named_with_those_that_are(url: str) -> None:
    with pytest.raises(UnknownProtocol, match=r"no protocol 'kafka'; use one of bullmq"):
        Corral(url, protocol="kafka")


async def test_a_namespace_is_what_a_protocols_keys_begin_with(server: Server) -> None:
    async with Corral(server.url, namespaces={"bullmq": "shop", "streams": "{shop}"}) as app:
        await app.queue("mail").add("greet")
        await app.queue(protocol="streams").add("embed", {"text": "…"})
    with server.connect() as client:
        assert client.exists("shop:mail:1", "{shop}:jobs:stream") == 2


# -- the decorator -------------------------------------------------------------------------------------------


async def test_a_decorated_function_is_still_the_function(app: Corral) -> None:
    @app.job("double", queue="sums")
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    assert double(21) == 42
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")


async def test_options_of_the_decorator_are_those_of_each_job(app: Corral) -> None:
    @app.job(
        "send-email",
        queue="mail",
        attempts=5,
        backoff={"type": "fixed", "delay": 250, "jitter": 0.5},
        priority=7,
        remove_on_complete=100,
        remove_on_fail={"age": 3600},
        lifo=False,
        keep_logs=5,
    )
    async def send_email(job: Any) -> None: ...

    job = await send_email.add({"to": "…"})
    assert job.job.options.attempts == 5
    assert job.job.options.backoff == Backoff("fixed", 250, 0.5)
    assert job.job.options.keep_completed == Keep(count=100)
    assert job.job.options.keep_dead == Keep(age=3600)
    found = await send_email.queue.job(job.id)
    assert found is not None
    assert found.options == job.job.options


async def test_options_at_add_win_over_the_decorators(app: Corral) -> None:
    @app.job("send-email", queue="mail", attempts=5, priority=9)
    async def send_email(job: Any) -> None: ...

    job = await send_email.options(attempts=2).add({})
    assert (job.job.options.attempts, job.job.options.priority) == (2, 9)


async def test_a_wrong_option_is_found_where_it_is_written(app: Corral) -> None:
    with pytest.raises(InvalidOptions, match=r"no option 'atempts'; did you mean 'attempts'\?"):
        app.job("send-email", atempts=5)
    with pytest.raises(Unsupported, match=r"protocol 'streams' has no retry"):
        app.job("embed", protocol="streams", attempts=5)
    with pytest.raises(InvalidOptions, match=r"timeout=-1"):

        @app.job("send-email", timeout=-1)
        async def send_email(job: Any) -> None: ...


async def test_one_name_has_one_handler(app: Corral) -> None:
    @app.job("greet")
    async def greet(job: Any) -> None: ...

    with pytest.raises(InvalidOptions, match=r"'greet' has a handler already"):

        @app.job("greet")
        async def again(job: Any) -> None: ...


async def test_a_job_of_the_streams_protocol_is_added_by_the_same_words(app: Corral) -> None:
    @app.job("embed", protocol="streams")
    async def embed(job: Any) -> list[int]:
        return [len(job.data["text"])]

    async with working(app):
        job = await embed.add({"text": "herd"})
        assert (await ended(embed.queue, job.id)).result == [4]


# -- add -----------------------------------------------------------------------------------------------------


async def test_delay_and_priority_are_given_at_add(app: Corral, server: Server) -> None:
    @app.job("send-email", queue="mail")
    async def send_email(job: Any) -> None: ...

    job = await send_email.options(delay=60_000, priority=5).add({"to": "…"})
    assert (job.job.options.delay, job.job.options.priority) == (60_000, 5)
    assert (await app.queue("mail").counts())[JobState.DELAYED] == 1
    with server.connect() as client:
        [(_, score)] = client.zrange("bull:mail:delayed", 0, -1, withscores=True)
        assert int(score / 4096) == job.job.created_at + 60_000


async def test_a_lower_number_runs_earlier_and_no_priority_first(app: Corral) -> None:
    ran: list[int] = []

    @app.job("count", queue="order")
    async def count(job: Any) -> None:
        ran.append(job.data)

    for priority in (3, 1, 2, 0):
        last = await count.options(priority=priority).add(priority)
    assert last.job.options.priority == 0
    async with working(app, concurrency=1):
        assert await becomes_true(lambda: len(ran) == 4)
    assert ran == [0, 1, 2, 3]


async def test_a_delayed_job_waits_its_time(app: Corral) -> None:
    @app.job("later", queue="mail")
    async def later(job: Any) -> None: ...

    async with working(app):
        job = await ended(later.queue, (await later.options(delay=300).add({})).id)
    assert job.started_at is not None
    assert 300 <= job.started_at - job.created_at < 3000


async def test_an_id_of_ones_own_is_kept_and_its_second_job_is_the_first(app: Corral) -> None:
    queue = app.queue("mail")
    first = await queue.add("greet", {"n": 1}, id="order-7")
    second = await queue.add("greet", {"n": 2}, id="order-7")
    assert (first.id, second.id) == ("order-7", "order-7")
    found = await queue.job("order-7")
    assert found is not None
    assert found.data == {"n": 1}
    assert [event.kind for event in await queue.events.range()] == ["added", "waiting", "duplicated"]


@pytest.mark.parametrize(
    "data",
    [{}, [], "text", 0, 1.5, True, {"a": [1, {"b": None}]}, {"n": 130775545883395173}, {"é": "🐄"}, [[], {}]],
)
async def test_data_reads_back_as_it_was_given(app: Corral, data: Any) -> None:
    job = await app.queue("mail").add("greet", data)
    found = await app.queue("mail").job(job.id)
    assert found is not None
    assert found.data == data
    assert type(found.data) is type(data)


async def test_no_data_is_an_empty_object(app: Corral) -> None:
    assert (await app.queue("mail").add("greet")).data == {}


# -- queues --------------------------------------------------------------------------------------------------


async def test_the_queues_of_a_protocol_are_found(app: Corral) -> None:
    for name in ("mail", "sums", "eu.{shop}"):
        await app.queue(name).add("greet")
    assert [queue.name for queue in await app.queues()] == ["eu.{shop}", "mail", "sums"]
    assert [queue.name for queue in await app.queues("streams")] == ["jobs"]


async def test_a_foreign_queue_whose_name_breaks_our_grammar_is_read_all_the_same(
    app: Corral, server: Server
) -> None:
    with server.connect() as client:
        client.hset("bull:my queue:meta", "opts.maxLenEvents", 10_000)
        client.lpush("bull:my queue:wait", "1")
    [queue] = await app.queues()
    assert queue.name == "my queue"
    assert (await queue.counts())[JobState.WAITING] == 1


# -- schemas -------------------------------------------------------------------------------------------------


async def test_what_is_on_the_wire_fits_the_shipped_schemas(app: Corral, server: Server) -> None:
    @app.job("send-email", queue="mail", priority=3, remove_on_complete={"age": 60, "count": 5})
    async def send_email(job: Any) -> dict[str, bool]:
        await job.progress(50)
        return {"sent": True}

    async with working(app):
        job = await send_email.add({"to": "…"})
        await ended(send_email.queue, job.id)
    with server.connect() as client:
        fields: dict[bytes, bytes] = client.hgetall(f"bull:mail:{job.id}")
    document = {
        "id": job.id,
        "name": fields[b"name"].decode(),
        "data": orjson.loads(fields[b"data"]),
        "opts": orjson.loads(fields[b"opts"]),
        "timestamp": int(fields[b"timestamp"]),
        "attemptsMade": int(fields[b"atm"]),
        "processedOn": int(fields[b"processedOn"]),
        "finishedOn": int(fields[b"finishedOn"]),
        "progress": orjson.loads(fields[b"progress"]),
        "returnvalue": orjson.loads(fields[b"returnvalue"]),
    }
    jsonschema.validate(document, payload_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "opts": {"attempts": 0}}, payload_schema())

    events = await send_email.queue.events.range()
    kinds = "added waiting active progress completed drained"
    assert [event.kind for event in events] == kinds.split()
    for event in events:
        jsonschema.validate(msgspec.to_builtins(event), event_schema())
