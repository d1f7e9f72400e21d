"""Record what RQ, Celery and arq write, for `test_formats.py`; they are not among Corral's dependencies.

In an environment of its own, with a Redis server that may be emptied:

    pip install rq celery arq msgpack packaging; pip install --no-deps "redis>=6.4,<7"
    python tests/migrate/record.py redis://127.0.0.1:6399/0 > tests/migrate/recorded.json
"""

import asyncio
import base64
import json
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

URL = sys.argv[1] if len(sys.argv) > 1 else ""
LATER = datetime(2096, 1, 2, 3, 4, 5, tzinfo=UTC)


def record_rq(client: Any) -> None:
    from rq import Queue, Retry
    from rq.serializers import JSONSerializer

    queue = Queue("default", connection=client, serializer=JSONSerializer)
    queue.enqueue("mail.send", "ada@example.org", subject="Hello", job_id="rq-1")
    queue.enqueue("mail.send", to="ben@example.org", job_id="rq-2", retry=Retry(max=3, interval=10))
    queue.enqueue_at(LATER, "mail.send", to="cy@example.org", job_id="rq-3")
    Queue("default", connection=client).enqueue("mail.send", "pickled", job_id="rq-4")


def record_celery(url: str) -> None:
    from celery import Celery, chain

    app = Celery("shop", broker=url)
    app.conf.broker_transport_options = {"priority_steps": list(range(10))[::3]}

    @app.task(name="mail.send")
    def send(*args: Any, **kwargs: Any) -> None: ...

    send.apply_async(kwargs={"to": "ada@example.org"}, task_id="3f0b9c1e-0000-4000-8000-000000000001")
    send.apply_async(args=["ben@example.org"], eta=LATER, task_id="3f0b9c1e-0000-4000-8000-000000000002")
    send.apply_async(kwargs={"to": "cy@example.org"}, priority=6, expires=LATER + timedelta(days=1))
    chain(send.si(to="a"), send.si(to="b")).apply_async()
    app.conf.update(task_serializer="pickle", accept_content=["pickle", "json"])
    send.apply_async(kwargs={"to": "pickled"}, serializer="pickle")


async def record_arq(url: str) -> None:
    import msgpack
    from arq import create_pool
    from arq.connections import RedisSettings

    settings = RedisSettings.from_dsn(url)
    packed = await create_pool(settings, job_serializer=msgpack.packb, job_deserializer=msgpack.unpackb)
    await packed.enqueue_job("send", to="ada@example.org", _job_id="arq-1")
    await packed.enqueue_job("send", "ben@example.org", _job_id="arq-2", _defer_until=LATER)
    as_json = await create_pool(settings, job_serializer=lambda job: json.dumps(job).encode())
    await as_json.enqueue_job("send", to="cy@example.org", _job_id="arq-3")
    await (await create_pool(settings)).enqueue_job("send", "pickled", _job_id="arq-4")


def dumped(client: Any) -> dict[str, Any]:
    """Every key as its type and its content, in base64."""

    def text(raw: bytes) -> str:
        return base64.b64encode(raw).decode()

    keys: dict[str, Any] = {}
    for key in sorted(client.keys("*")):
        kind = client.type(key).decode()
        content: Any = None
        if kind == "hash":
            content = [[text(name), text(value)] for name, value in client.hgetall(key).items()]
        elif kind == "list":
            content = [text(member) for member in client.lrange(key, 0, -1)]
        elif kind == "zset":
            content = [[text(member), score] for member, score in client.zrange(key, 0, -1, withscores=True)]
        elif kind == "set":
            content = [text(member) for member in client.smembers(key)]
        elif kind == "string":
            content = text(client.get(key))
        if content is not None:
            keys[text(key)] = [kind, content]
    return keys


def main() -> None:
    import redis

    client = redis.Redis.from_url(URL)
    recorded: dict[str, Any] = {}
    for name in ("rq", "celery", "arq"):
        client.flushdb()
        if name == "rq":
            record_rq(client)
        elif name == "celery":
            record_celery(URL)
        else:
            asyncio.run(record_arq(URL))
        recorded[name] = {"version": version(name), "keys": dumped(client)}
    json.dump(recorded, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
