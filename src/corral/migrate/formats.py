"""The queues of RQ, Celery, arq and plain lists of JSON: where their jobs are, and what they say.

Nothing is unpickled: what only pickle could read is listed with that reason, and stays where it is.
"""

import zlib
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Protocol

import msgpack
import orjson
from msgspec import Struct

from corral.core.job import Backoff, Job, JobOptions, JobState
from corral.protocols.wire import fields_of, id_text, text
from corral.store.client import Store

MOST_BYTES = 64 * 1024 * 1024
"""A record that is larger when it is unpacked is not read."""
PICKLED = "its payload is pickled, and Corral does not unpickle: run it there, or add it anew as JSON"


class UnreadableJob(ValueError):
    """Why a job cannot be read."""


class Place(Struct, frozen=True):
    """A key that lists jobs: from which end workers claim, or that it is a sorted set."""

    key: str
    kind: str
    """left, right or zset."""


class Member(Struct, frozen=True, kw_only=True):
    """What a queue lists of one job."""

    id: str
    key: str
    kind: str
    raw: bytes
    score: float | None = None
    active_key: str = ""
    """Exists while a worker runs it."""
    records: tuple[str, ...] = ()
    """The keys that are deleted with it."""
    has_id: bool = True
    """Whether the library gave it an id."""


class Format(Protocol):
    """How a library keeps its jobs."""

    def places(self, queue: str) -> dict[JobState, list[Place]]:
        """Return the keys that list jobs, by the state of those, the next to run first."""

    def member(self, place: Place, raw: bytes, score: float | None) -> Member:
        """Return what a queue lists."""

    async def records(self, store: Store, members: Sequence[Member]) -> list[Any]:
        """Return what the server keeps of each of these jobs; None where there is nothing."""

    def decode(self, member: Member, record: Any) -> Job:
        """Return the job; `UnreadableJob` where it cannot be read."""

    async def active(self, store: Store, queue: str) -> int:
        """Return how many jobs workers have, and others that cannot be moved."""


def _job(member: Member, name: Any, data: Any, created_at: int, **more: Any) -> Job:
    if not isinstance(name, str) or not name:
        raise UnreadableJob(f"its name is {name!r:.80}")
    state = JobState.WAITING if member.score is None else JobState.DELAYED
    options = {"attempts": 1, "backoff": None} | more.pop("options", {})
    return Job(
        id=member.id, name=name, data=data, queue="", state=more.pop("state", state), created_at=created_at,
        options=JobOptions(**options), **more,
    )  # fmt: skip


def _arguments(args: Any, kwargs: Any) -> Any:
    """Return the data of a job: its keyword arguments; where it has others, both."""
    if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
        raise UnreadableJob("its arguments are no list and no object")
    return kwargs if not args else {"args": list(args), "kwargs": kwargs}


def _milliseconds(stamp: str | None) -> int:
    if not stamp:
        return 0
    at = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


class RqFormat:
    """RQ: a list of ids, a hash for each job; readable with RQ's `JSONSerializer`."""

    def places(self, queue: str) -> dict[JobState, list[Place]]:
        return {
            JobState.WAITING: [Place(f"rq:queue:{queue or 'default'}", "left")],
            JobState.DELAYED: [Place(f"rq:scheduled:{queue or 'default'}", "zset")],
        }

    def member(self, place: Place, raw: bytes, score: float | None) -> Member:
        job_id = id_text(raw)
        key = f"rq:job:{job_id}"
        due = None if score is None else score * 1000
        return Member(id=job_id, key=place.key, kind=place.kind, raw=raw, score=due, records=(key,))

    async def records(self, store: Store, members: Sequence[Member]) -> list[Any]:
        names = [member.records[0] for member in members]
        hashes = await store.pipe([("HGETALL", name) for name in names])
        dependents = await store.pipe([("EXISTS", f"{name}:dependents") for name in names])
        return [
            {**fields_of(flat), b"_dependents": many} if flat else None
            for flat, many in zip(hashes, dependents, strict=True)
        ]

    def decode(self, member: Member, record: Any) -> Job:
        if record is None:
            raise UnreadableJob("its record does not exist any more")
        if record[b"_dependents"]:
            raise UnreadableJob("other jobs depend on it")
        content = _inflated(record.get(b"data", b""))
        try:
            name, instance, args, kwargs = orjson.loads(content)
        except (ValueError, TypeError):
            raise UnreadableJob(PICKLED) from None
        if instance is not None:
            raise UnreadableJob("it calls a method of an object")
        retries = int(record.get(b"retries_left", 0) or 0)
        options: dict[str, Any] = {"attempts": retries + 1}
        if retries:
            intervals = orjson.loads(record.get(b"retry_intervals") or b"[]") or [0]
            options["backoff"] = Backoff("fixed", int(intervals[0] * 1000)) if intervals[0] else None
        created = _milliseconds(text(record.get(b"created_at", b"")))
        return _job(member, name, _arguments(args, kwargs), created, options=options)

    async def active(self, store: Store, queue: str) -> int:
        name = queue or "default"
        counts = await store.pipe([("ZCARD", f"rq:wip:{name}"), ("ZCARD", f"rq:deferred:{name}")])
        return sum(counts)


def _inflated(raw: bytes) -> bytes:
    """Return what RQ has compressed, which older versions did not."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(raw, MOST_BYTES)
    except zlib.error:
        return raw
    if unpacking.unconsumed_tail:
        raise UnreadableJob(f"its payload has more than {MOST_BYTES} bytes")
    return content


class CeleryFormat:
    """Celery with Redis as its broker: lists of messages; readable with its JSON serializer, the default."""

    PRIORITIES = ("", "\x06\x163", "\x06\x166", "\x06\x169")
    """The ends of the keys for each step of priority."""

    def places(self, queue: str) -> dict[JobState, list[Place]]:
        name = queue or "celery"
        return {JobState.WAITING: [Place(name + end, "right") for end in self.PRIORITIES]}

    def member(self, place: Place, raw: bytes, score: float | None) -> Member:
        return _numbered(place, raw)

    async def records(self, store: Store, members: Sequence[Member]) -> list[Any]:
        return [member.raw for member in members]

    def decode(self, member: Member, record: Any) -> Job:
        message = _loads(record)
        headers, properties = message.get("headers"), message.get("properties")
        if not isinstance(headers, dict) or not isinstance(properties, dict):
            raise UnreadableJob("it is no message of Celery's second protocol")
        if message.get("content-type") != "application/json":
            raise UnreadableJob(_serialized(message.get("content-type")))
        body = message.get("body", "")
        args, kwargs, embed = orjson.loads(b64decode(body) if properties.get("body_encoding") else body)
        if any((embed or {}).get(part) for part in ("callbacks", "errbacks", "chain", "chord")):
            raise UnreadableJob("it is a part of a chain, group or chord")
        options: dict[str, Any] = {"priority": int(properties.get("priority") or 0)}
        if headers.get("expires"):
            options["extra"] = {"expires": headers["expires"]}
        state = JobState.DELAYED if headers.get("eta") else JobState.WAITING
        return _job(
            member, headers.get("task"), _arguments(args, kwargs), 0, state=state, options=options,
            attempts_made=int(headers.get("retries") or 0),
            extra={"id": headers.get("id"), "due": _milliseconds(headers.get("eta"))},
        )  # fmt: skip

    async def active(self, store: Store, queue: str) -> int:
        return int(await store.call("HLEN", "unacked"))


class ArqFormat:
    """arq: a sorted set of ids by their due time; readable where its serializer is JSON or MessagePack."""

    def places(self, queue: str) -> dict[JobState, list[Place]]:
        return {JobState.WAITING: [Place(queue or "arq:queue", "zset")]}

    def member(self, place: Place, raw: bytes, score: float | None) -> Member:
        job_id = id_text(raw)
        return Member(
            id=job_id, key=place.key, kind=place.kind, raw=raw, score=score,
            active_key=f"arq:in-progress:{job_id}", records=(f"arq:job:{job_id}", f"arq:retry:{job_id}"),
        )  # fmt: skip

    async def records(self, store: Store, members: Sequence[Member]) -> list[Any]:
        return await store.pipe([("GET", member.records[0]) for member in members])

    def decode(self, member: Member, record: Any) -> Job:
        if record is None:
            raise UnreadableJob("its record does not exist any more")
        for loads in (orjson.loads, _unpacked):
            try:
                fields = loads(record)
            except ValueError:
                continue
            if isinstance(fields, dict) and {"f", "a", "k", "et"} <= fields.keys():
                data = _arguments(fields["a"], fields["k"])
                return _job(member, fields["f"], data, int(fields["et"]))
        raise UnreadableJob(PICKLED)

    async def active(self, store: Store, queue: str) -> int:
        return 0  # they stay in the set, and are found when they cannot be held


def _unpacked(raw: bytes) -> Any:
    try:
        return msgpack.unpackb(raw)
    except (msgpack.UnpackException, ValueError, TypeError) as error:
        raise ValueError(str(error)) from None


class JsonFormat:
    """A list of JSON, the next to run at its left end: `{"name": …, "data": …}`, or any other as the data."""

    def places(self, queue: str) -> dict[JobState, list[Place]]:
        return {JobState.WAITING: [Place(queue, "left")]}

    def member(self, place: Place, raw: bytes, score: float | None) -> Member:
        return _numbered(place, raw)

    async def records(self, store: Store, members: Sequence[Member]) -> list[Any]:
        return [member.raw for member in members]

    def decode(self, member: Member, record: Any) -> Job:
        try:
            value = orjson.loads(record)
        except ValueError:
            raise UnreadableJob(_serialized(None) if record[:1] == b"\x80" else "it is no JSON") from None
        if (
            isinstance(value, dict)
            and isinstance(value.get("name"), str)
            and value.keys() <= {"name", "data"}
        ):
            return _job(member, value["name"], value.get("data", {}), 0)
        return _job(member, member.key, value, 0)

    async def active(self, store: Store, queue: str) -> int:
        return 0


def _numbered(place: Place, raw: bytes) -> Member:
    """Return a member that is known by what it contains; the caller tells equal ones apart."""
    name = blake2b(raw, digest_size=16).hexdigest()
    return Member(id=name, key=place.key, kind=place.kind, raw=raw, has_id=False)


def told_apart(members: Sequence[Member], seen: "Counter[str]") -> list[Member]:
    """Return members of which no two have the same id."""
    from msgspec.structs import replace

    distinct = []
    for member in members:
        seen[member.id] += 1
        number = seen[member.id]
        distinct.append(member if number == 1 else replace(member, id=f"{member.id}-{number}"))
    return distinct


def _loads(raw: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(raw)
    except ValueError:
        raise UnreadableJob("it is no JSON") from None
    if not isinstance(message, dict):
        raise UnreadableJob("it is no message")
    return message


def _serialized(content_type: Any) -> str:
    if content_type in (None, "application/x-python-serialize"):
        return PICKLED
    return f"its payload is {content_type}, not JSON"


FORMATS: dict[str, Callable[[], Format]] = {
    "rq": RqFormat,
    "celery": CeleryFormat,
    "arq": ArqFormat,
    "json": JsonFormat,
}
