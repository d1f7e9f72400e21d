"""Hostile names, ids, options and payloads: a clear error, and a keyspace that is the same byte for byte."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis

from corral import Corral, InvalidName, InvalidOptions, InvalidPayload, JobState, Refused, Unsupported
from corral.errors import IdempotencyConflict, PayloadTooLarge
from tests.support.apps import ended, working
from tests.support.servers import Server

NUL, NEW_LINE, SURROGATE = "a\0b", "a\nb", "a\ud800b"
MEGABYTES_10 = 10 * 1024 * 1024
NAMED = {"bullmq": "greet", "streams": "tool"}
"""A job name each protocol takes."""


@dataclass
class Mail:
    to: str


def deep(levels: int) -> Any:
    """A list inside a list, so many times."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def itself() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def dump(client: redis.Redis) -> dict[bytes, tuple[Any, Any, Any]]:
    """Every key of every database: how it is stored, byte for byte, and when it ends."""
    found = {}
    for key in client.scan_iter("*", count=1000):
        found[key] = (client.type(key), client.dump(key), client.pexpiretime(key))
    return found


@pytest.fixture
def furnished(server: Server) -> Server:
    """A server on which both protocols hold jobs already: there is something that could be damaged."""
    return server


@pytest.fixture
async def app(furnished: Server) -> AsyncIterator[Corral]:
    async with Corral(furnished.url) as app:
        for protocol, name in NAMED.items():
            queue = app.queue(protocol=protocol)
            for number in range(3):
                await queue.add(name, {"number": number})
        await app.queue("default").add("greet", id="given", delay=60_000)
        yield app


@contextmanager
def unchanged(server: Server) -> Iterator[None]:
    """What happens inside leaves the keyspace as it was."""
    with server.connect() as client:
        before = dump(client)
        assert len(before) > 10
        yield
        after = dump(client)
    assert after.keys() == before.keys()
    assert after == before


async def expect_refused(
    app: Corral, server: Server, error: type[Refused], protocol: str, name: Any, data: Any, **options: Any
) -> str:
    """Return the refusal's message: the same for one job, for many, and for an option of all."""
    queue = app.queue(protocol=protocol)
    own = {"id": options.pop("id")} if "id" in options else {}
    with unchanged(server):
        with pytest.raises(error) as alone:
            await queue.add(name, data, **own, **options)
        good = (NAMED[protocol], {"fine": True})
        with pytest.raises(error) as among:
            await queue.add_many([good, (name, data, {**own, **options}), good])
    assert str(among.value) == f"job 1 of this call: {alone.value}"
    message = str(alone.value)
    assert message.isprintable(), "whoever reads it on a terminal is safe"
    assert len(message) < 1000
    return message


# -- queue names --------------------------------------------------------------------------------------------

BAD_QUEUES = [
    "", " ", "a b", "a:b", ":", "{}", "{", "}", "a{b", "{a}{b}", "{a{b}}", NUL, NEW_LINE, SURROGATE, "é",
    "a*", "[a]", "a/b", "..", "-", "a\x7f", "\u202e", "q" * 256, b"mail", 7, ["mail"],
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_QUEUES, ids=repr)
@pytest.mark.parametrize("protocol", NAMED)
async def test_a_queue_name_outside_the_grammar_is_refused(
    app: Corral, furnished: Server, name: Any, protocol: str
) -> None:
    with unchanged(furnished), pytest.raises(InvalidName) as caught:
        await app.queue(name, protocol).add(NAMED[protocol], {})
    assert "queue" in str(caught.value)
    assert str(caught.value).isprintable()


async def test_the_streams_protocol_has_one_queue_and_says_so(app: Corral, furnished: Server) -> None:
    with unchanged(furnished), pytest.raises(InvalidName, match="protocol 'streams' has one queue, 'jobs'"):
        await app.queue("mail", "streams").add("embed", {})


# -- ids ----------------------------------------------------------------------------------------------------

BAD_IDS = [
    "meta", "wait", "active", "paused", "delayed", "completed", "failed", "stalled", "marker", "events", "id",
    "pc", "limiter", "prioritized", "waiting-children", "repeat", "cancelling", "stalled-check",
    "1:lock", "1:logs", "a:b", "a:b:c", "0", "7", "-7", "+7", "0:1", "{}", "{a}",
    "", " ", "a b", NUL, NEW_LINE, "a\r", "a\t", SURROGATE, "a\u2028b", "a\u202eb", "e\u0301", "-", "._.",
    "*", "a?b", "[a]", "a/b", "a%b", "a#b", "<b>", "'", '"', "\\", "job@1700000000000", "i" * 513,
    7, 0, 7.5, b"a", True, ["a"], {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("job_id", BAD_IDS, ids=lambda value: repr(value)[:30])
@pytest.mark.parametrize("protocol", NAMED)
async def test_an_id_that_could_do_harm_is_refused(
    app: Corral, furnished: Server, job_id: Any, protocol: str
) -> None:
    message = await expect_refused(app, furnished, InvalidName, protocol, NAMED[protocol], {}, id=job_id)
    assert message.startswith("job id ")


async def test_the_refusals_of_ids_name_the_value_and_the_way_out(app: Corral, furnished: Server) -> None:
    say = {
        "meta": "job id 'meta' is the name of one of the queue's own keys; "
        "put a word in front, such as 'job-meta'",
        "1:lock": "job id '1:lock' contains ':'; use letters, digits and any of - _ . ~ @ + = ,",
        "{}": "job id '{}' contains '{'; use letters, digits and any of - _ . ~ @ + = ,",
        NEW_LINE: r"job id 'a\nb' contains '\n'; use letters, digits and any of - _ . ~ @ + = ,",
    }
    for job_id, sentence in say.items():
        assert await expect_refused(app, furnished, InvalidName, "bullmq", "greet", {}, id=job_id) == sentence


async def test_the_streams_protocol_takes_uuids_only(app: Corral, furnished: Server) -> None:
    message = await expect_refused(app, furnished, InvalidName, "streams", "embed", {}, id="order-7")
    assert message.startswith("job id 'order-7' is not a UUID")
    shouting = "3F2504E0-4F89-11D3-9A0C-0305E82C3301"
    message = await expect_refused(app, furnished, InvalidName, "streams", "embed", {}, id=shouting)
    assert "use lower-case hex digits" in message


# -- job names ----------------------------------------------------------------------------------------------

BAD_NAMES = ["", " ", NUL, NEW_LINE, "a\x1b[2J", SURROGATE, "a\u2028", "n" * 1025, 7, b"n", None, [""]]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda value: repr(value)[:30])
@pytest.mark.parametrize("protocol", NAMED)
async def test_a_job_name_that_cannot_be_read_is_refused(
    app: Corral, furnished: Server, name: Any, protocol: str
) -> None:
    assert "job name" in await expect_refused(app, furnished, InvalidName, protocol, name, {})


async def test_the_streams_protocol_knows_six_names(app: Corral, furnished: Server) -> None:
    message = await expect_refused(app, furnished, InvalidName, "streams", "greet", {})
    assert message == "protocol 'streams' has no task 'greet'; use one of chat, plan, code, tool, rag, embed"


# -- options ------------------------------------------------------------------------------------------------

BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"priority": -1}, "priority is -1; use 0 (no priority) or a positive number up to 2097152"),
    ({"priority": 2**21 + 1}, "priority is 2097153"),
    ({"priority": 1.5}, "priority is 1.5"),
    ({"priority": True}, "priority is True"),
    ({"priority": "5"}, "priority is '5'"),
    ({"delay": -1}, "delay is -1; use 0 (at once) or whole milliseconds"),
    ({"delay": 10**70}, "delay is 1000"),
    ({"delay": float("nan")}, "delay is nan"),
    ({"delay": float("inf")}, "delay is inf"),
    ({"attempts": 0}, "attempts is 0; use a whole number from 1"),
    ({"attempts": -1}, "attempts is -1"),
    ({"attempts": 2.0}, "attempts is 2.0"),
    ({"backoff": {"type": "linear"}}, "backoff type is 'linear'; use 'fixed', 'exponential'"),
    ({"backoff": "linear"}, "backoff type is 'linear'"),
    ({"backoff": {"delay": 5}}, "backoff type is None"),
    ({"backoff": {"type": "fixed", "delay": 0}}, "backoff delay is 0; use whole milliseconds from 1"),
    ({"backoff": {"type": "fixed", "delay": -5}}, "backoff delay is -5"),
    ({"backoff": {"type": "fixed", "delay": 5, "jitter": 2}}, "backoff jitter is 2"),
    ({"backoff": {"type": "fixed", "wait": 5}}, "backoff has 'wait'"),
    ({"backoff": 0}, "backoff delay is 0"),
    ({"backoff": [1]}, "backoff is [1]"),
    ({"remove_on_complete": -1}, "remove_on_complete is -1; use True (remove), False (keep all)"),
    ({"remove_on_fail": -1}, "remove_on_fail is -1"),
    ({"remove_on_complete": {}}, "remove_on_complete is empty"),
    ({"remove_on_complete": {"age": 0}}, "remove_on_complete age is 0"),
    ({"remove_on_complete": "yes"}, "remove_on_complete is 'yes'"),
    ({"keep_logs": 0}, "keep_logs is 0"),
    ({"lifo": "yes"}, "lifo is 'yes'"),
    ({"prioritty": 5}, "there is no option 'prioritty'; did you mean 'priority'?"),
    ({"jobId": "meta"}, "there is no option 'jobId'"),
    ({"repeat": {"every": 1}}, "there is no option 'repeat'"),
]


@pytest.mark.parametrize(("options", "sentence"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
async def test_an_option_outside_its_limits_is_refused(
    app: Corral, furnished: Server, options: dict[str, Any], sentence: str
) -> None:
    assert sentence in await expect_refused(app, furnished, InvalidOptions, "bullmq", "greet", {}, **options)


async def test_the_streams_protocol_refuses_them_too(app: Corral, furnished: Server) -> None:
    for options, _ in BAD_OPTIONS:
        await expect_refused(app, furnished, Refused, "streams", "tool", {}, **options)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"delay": 1000}, "delay"),
        ({"priority": 5}, "priority"),
        ({"attempts": 5}, "retry"),
        ({"backoff": 100}, "retry"),
        ({"lifo": True}, "lifo"),
        ({"remove_on_complete": True}, "removal policies"),
        ({"remove_on_fail": 5}, "removal policies"),
        ({"keep_logs": 5}, "logs"),
    ],
    ids=str,
)
async def test_what_a_protocols_contract_has_no_word_for_is_refused(
    app: Corral, furnished: Server, options: dict[str, Any], what: str
) -> None:
    message = await expect_refused(app, furnished, Unsupported, "streams", "tool", {}, **options)
    assert message.startswith(f"protocol 'streams' has no {what}, so ")
    assert message.endswith("leave it out, or use a protocol that has it")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ttl_s": 0}, "ttl_s=0 is not a whole number"),
        ({"ttl_s": -1}, "ttl_s=-1"),
        ({"ttl_s": 2**31}, "ttl_s=2147483648"),
        ({"ttl_s": "60"}, "ttl_s='60'"),
        ({"ttl_s": True}, "ttl_s=True"),
        ({"idempotency_key": ""}, "idempotency_key='' does not fit"),
        ({"idempotency_key": "two words"}, "idempotency_key='two words'"),
        ({"idempotency_key": NEW_LINE}, "idempotency_key='a"),
        ({"idempotency_key": "é"}, "idempotency_key="),
        ({"idempotency_key": "k" * 256}, "idempotency_key='kkk"),
        ({"idempotency_key": 7}, "idempotency_key=7"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_options_of_the_streams_protocol_have_limits(
    app: Corral, furnished: Server, options: dict[str, Any], sentence: str
) -> None:
    assert sentence in await expect_refused(app, furnished, InvalidOptions, "streams", "tool", {}, **options)


async def test_an_idempotency_key_cannot_be_taken_over_by_another_request(
    app: Corral, furnished: Server
) -> None:
    queue = app.queue(protocol="streams")
    first = await queue.add("tool", {"n": 1}, idempotency_key="order-7")
    with unchanged(furnished), pytest.raises(IdempotencyConflict, match=f"belongs to job {first.id}"):
        await queue.add("tool", {"n": 2}, idempotency_key="order-7")
    with unchanged(furnished):
        assert (await queue.add("tool", {"n": 1}, idempotency_key="order-7")).id == first.id


# -- payloads -----------------------------------------------------------------------------------------------

BAD_DATA: list[tuple[str, Any, str]] = [
    ("nan", float("nan"), "JSON has no such number"),
    ("infinity", float("inf"), "JSON has no such number"),
    ("minus infinity", -float("inf"), "JSON has no such number"),
    ("half a pair", SURROGATE, "half a surrogate pair"),
    ("the other half", "\udfff", "half a surrogate pair"),
    ("70 digits", 10**69, "64 bits: use text"),
    ("beyond 64 bits", 2**64, "64 bits: use text"),
    ("below 64 bits", -(2**63) - 1, "64 bits: use text"),
    ("a million digits", 10**1_000_000, "an integer of 3321929 bits"),
    ("depth 3000", deep(3000), "nested more than 254 levels deep"),
    ("depth 256", deep(256), "nested more than 254 levels deep"),
    ("itself", itself(), "or inside itself"),
    ("bytes", b"\xff", "use text, such as base64"),
    ("a set", {1, 2}, "use a list"),
    ("a key that is no text", {1: "a"}, "use plain text for keys"),
    ("no key", {None: "a"}, "use plain text for keys"),
    ("a broken key", {SURROGATE: 1}, "half a surrogate pair"),
    ("a decimal", Decimal("1.1"), "use str() to keep every digit"),
    ("a dataclass", Mail("…"), "use dataclasses.asdict()"),
    ("a span of time", timedelta(1), "use a number of seconds"),
    ("a zoned time of day", time(tzinfo=UTC), "use a datetime, or text"),
    ("a function", print, "use what JSON has"),
    ("a complex number", 1j, "use what JSON has"),
]


@pytest.mark.parametrize(("data", "sentence"), [pytest.param(*rest, id=name) for name, *rest in BAD_DATA])
@pytest.mark.parametrize("where", ["alone", "inside"])
@pytest.mark.parametrize("protocol", NAMED)
async def test_data_that_json_cannot_carry_is_refused(
    app: Corral, furnished: Server, data: Any, sentence: str, where: str, protocol: str
) -> None:
    if where == "alone" and protocol == "streams":
        message = await expect_refused(app, furnished, InvalidPayload, protocol, "tool", data)
        assert message.startswith("payload")
        return
    given = data if where == "alone" else {"fine": [1, {"bad": data}]}
    message = await expect_refused(app, furnished, InvalidPayload, protocol, NAMED[protocol], given)
    what = "data" if protocol == "bullmq" else "payload"
    if "nested" not in sentence and "itself" not in sentence:
        path = what if where == "alone" else f"{what}.fine[1].bad"
        assert message.startswith(f"{path} "), "the part that is wrong is named"
    assert sentence in message


@pytest.mark.parametrize("data", [None, [], "text", 7, True], ids=repr)
async def test_a_payload_of_the_streams_protocol_is_an_object(
    app: Corral, furnished: Server, data: Any
) -> None:
    if data is None:
        assert (await app.queue(protocol="streams").add("tool", data)).data == {}
        return
    message = await expect_refused(app, furnished, InvalidPayload, "streams", "tool", data)
    assert f"payload is a {type(data).__name__}; the streams contract carries a JSON object" in message


async def test_ten_megabytes_and_a_byte_are_refused_in_the_contracts_words(
    app: Corral, furnished: Server
) -> None:
    with furnished.connect() as client:
        options = len(client.hget("bull:default:1", "opts") or b"")
    quotes = 2
    fits = "x" * (MEGABYTES_10 - options - quotes)
    message = await expect_refused(app, furnished, PayloadTooLarge, "bullmq", "greet", fits + "x")
    assert message == "Job payload size 10.0 MB exceeds limit of 10.0 MB (10485761 bytes, 1 over)"
    message = await expect_refused(
        app, furnished, PayloadTooLarge, "bullmq", "greet", "x" * int(12.3 * 1024 * 1024)
    )
    assert message == "Job payload size 12.3 MB exceeds limit of 10.0 MB"
    job = await app.queue().add("greet", fits)
    with furnished.connect() as client:
        assert client.hstrlen(f"bull:default:{job.id}", "data") == MEGABYTES_10 - options


async def test_the_size_counts_bytes_not_characters(app: Corral, furnished: Server) -> None:
    message = await expect_refused(
        app, furnished, PayloadTooLarge, "bullmq", "greet", "é" * (6 * 1024 * 1024)
    )
    assert message == "Job payload size 12.0 MB exceeds limit of 10.0 MB"


async def test_200_kilobytes_are_the_streams_protocols_limit(app: Corral, furnished: Server) -> None:
    most = 200 * 1024
    around = len(b'{"t":""}')
    message = await expect_refused(
        app, furnished, PayloadTooLarge, "streams", "tool", {"t": "x" * (most - around + 1)}
    )
    assert message.startswith(f"payload has {most + 1} bytes, the streams contract allows {most}")
    await app.queue(protocol="streams").add("tool", {"t": "x" * (most - around)})


# -- what is not refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["'; FLUSHALL", "$(reboot)", "{{7*7}}", "<script>alert(1)</script>", "\x1b[2J", "\0", "__proto__", "%s%n",
     "\r\n*1\r\n$8\r\nFLUSHALL\r\n", "🐄\u202e", "'\"\\", "[red]bold[/red]"],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("protocol", NAMED)
async def test_text_that_means_something_elsewhere_is_data_here(
    app: Corral, furnished: Server, text: str, protocol: str
) -> None:
    queue = app.queue(protocol=protocol)
    data = {text: [text, {"inside": text}]}
    job = await queue.add(NAMED[protocol], data)
    found = await queue.job(job.id)
    assert found is not None
    assert found.data == data
    with furnished.connect() as client:
        assert client.exists("bull:default:1") == 1


# -- a handler's own words ----------------------------------------------------------------------------------

BAD_WORDS: list[tuple[str, tuple[Any, ...]]] = [
    ("progress", (float("nan"),)),
    ("progress", (-1,)),
    ("progress", (101,)),
    ("progress", (SURROGATE,)),
    ("progress", ({1: 2},)),
    ("progress", (50, SURROGATE)),
    ("emit", ("", {})),
    ("emit", (" ", {})),
    ("emit", (NEW_LINE, {})),
    ("emit", (SURROGATE, {})),
    ("emit", ("s" * 256, {})),
    ("emit", (7, {})),
    ("emit", ("step", float("inf"))),
    ("emit", ("step", deep(3000))),
]


@pytest.mark.parametrize("protocol", NAMED)
async def test_what_a_handler_cannot_say_is_refused_there_and_tells_nobody(
    app: Corral, furnished: Server, protocol: str
) -> None:
    refusals: list[str] = []

    def records(job_id: str) -> list[Any]:
        # where words go; beside them a worker renews locks and notes that it lives
        keys = [f"bull:default:{job_id}", f"bull:default:{job_id}:logs", "bull:default:events"]
        keys += [f"job:{job_id}", f"job:{job_id}:events", "jobs:events"]
        with furnished.connect() as client:
            return [client.dump(key) for key in keys]

    async def speak(job: Any) -> None:
        before = records(job.id)
        for verb, words in BAD_WORDS:
            try:
                await getattr(job, verb)(*words)
            except Refused as error:
                refusals.append(str(error))
        assert records(job.id) == before
        assert await job.log(SURROGATE) in (0, 1)  # a log line is still accepted

    kind = app.job(NAMED[protocol], protocol=protocol)(speak)
    queue = kind.queue
    async with working(app, concurrency=1):
        job = await ended(queue, (await kind.add({})).id)
    assert job.state is JobState.COMPLETED, job.trace
    assert len(refusals) == len(BAD_WORDS) * 4, "each of them, in this job and in the three before it"
    assert await queue.logs(job.id) == [r"a\ud800b"]
