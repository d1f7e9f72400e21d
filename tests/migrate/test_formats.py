"""Jobs of RQ, Celery and arq, as these libraries wrote them (`record.py`), and of plain lists of JSON."""

import json
import pickle
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import redis

from corral.core.job import Backoff, Job, JobState
from corral.migrate.formats import PICKLED
from tests.migrate.conftest import MakeSide, Side, move

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
LATER_MS = 3_976_311_845_000


def write(client: redis.Redis, library: str) -> None:
    """Write what the library has written."""
    for encoded, (kind, content) in RECORDED[library]["keys"].items():
        key = b64decode(encoded)
        match kind:
            case "hash":
                client.hset(key, mapping={b64decode(name): b64decode(value) for name, value in content})
            case "list":
                client.rpush(key, *map(b64decode, content))
            case "zset":
                client.zadd(key, {b64decode(member): score for member, score in content})
            case "set":
                client.sadd(key, *map(b64decode, content))
            case _:
                client.set(key, b64decode(content))


@pytest.fixture(autouse=True)
def no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is unpickled ends the test."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was unpickled")

    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)


async def imported(source: str, target: Side) -> dict[str, Job]:
    """Import all that can be read, and return it by its id; what is pickled stays and is told about."""
    report = await move(source, target, adapt=True, leave=True)
    assert report.is_verified, report
    assert report.left[PICKLED].count == 1
    return await target.jobs()


async def test_jobs_of_rq_are_imported(side: MakeSide, client: redis.Redis, url: str) -> None:
    write(client, "rq")
    target = side("bullmq", "to")
    jobs = await imported(f"{url}?format=rq&queue=default", target)
    assert sorted(jobs) == ["rq-1", "rq-2", "rq-3"]
    assert {job.name for job in jobs.values()} == {"mail.send"}
    assert jobs["rq-1"].data == {"args": ["ada@example.org"], "kwargs": {"subject": "Hello"}}
    assert jobs["rq-2"].data == {"to": "ben@example.org"}
    assert jobs["rq-2"].options.attempts == 4
    assert jobs["rq-2"].options.backoff == Backoff("fixed", 10_000)
    assert jobs["rq-3"].state is JobState.DELAYED
    assert client.zscore("to:default:delayed", "rq-3") == LATER_MS * 4096
    assert client.lrange("rq:queue:default", 0, -1) == [b"rq-4"]
    assert client.keys("rq:job:*") == [b"rq:job:rq-4"]


async def test_jobs_of_celery_are_imported(side: MakeSide, client: redis.Redis, url: str) -> None:
    write(client, "celery")
    target = side("bridgemq", "to")
    jobs = await imported(f"{url}?format=celery", target)
    first, second = (f"3f0b9c1e-0000-4000-8000-00000000000{n}" for n in (1, 2))
    assert jobs[first].data == {"to": "ada@example.org"}
    assert jobs[second].data == {"args": ["ben@example.org"], "kwargs": {}}
    assert jobs[second].state is JobState.DELAYED
    assert client.zscore("to:jobs:delayed", second) == LATER_MS
    [urgent] = [job for job in jobs.values() if job.id not in (first, second)]
    assert (urgent.data, urgent.options.priority) == ({"to": "cy@example.org"}, 0)
    assert client.llen("celery") == 2, "the chain and what is pickled"


async def test_jobs_of_arq_are_imported_and_those_in_progress_are_left(
    side: MakeSide, client: redis.Redis, url: str
) -> None:
    write(client, "arq")
    client.set("arq:in-progress:arq-3", "1")
    target = side("bullmq", "to")
    jobs = await imported(f"{url}?format=arq", target)
    assert sorted(jobs) == ["arq-1", "arq-2"]
    assert jobs["arq-1"].data == {"to": "ada@example.org"}
    assert jobs["arq-2"].state is JobState.DELAYED
    client.delete("arq:in-progress:arq-3")
    assert (await imported(f"{url}?format=arq", target)).keys() == {"arq-1", "arq-2", "arq-3"}
    assert client.zrange("arq:queue", 0, -1) == [b"arq-4"]


async def test_a_list_of_json_is_imported_in_order_equal_ones_too(
    side: MakeSide, client: redis.Redis, url: str
) -> None:
    named = '{"name": "send", "data": {"to": "ada"}}'
    client.rpush("todo", named, '{"plain": 1}', "[1, 2]", named, "{broken", named)
    target = side("bullmq", "to")
    report = await move(f"{url}?format=json&queue=todo", target, leave=True)
    assert (report.count, report.left["it is no JSON"].count) == (5, 1)
    assert [(job.name, job.data) for job in await target.listed()] == [
        ("send", {"to": "ada"}),
        ("todo", {"plain": 1}),
        ("todo", [1, 2]),
        ("send", {"to": "ada"}),
        ("send", {"to": "ada"}),
    ]
    assert client.lrange("todo", 0, -1) == [b"{broken"]
