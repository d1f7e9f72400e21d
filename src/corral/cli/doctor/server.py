"""Is the server one that jobs can be trusted to?"""

import time
from collections.abc import Iterator, Sequence

from corral.app import Corral
from corral.cli.doctor.findings import Finding, fine, note, wrong
from corral.errors import StoreFault
from corral.store.connect import Store
from corral.store.slots import has_tag
from corral.wiring import Room

OLDEST = (6, 2)
"""The first Redis with all the commands that are used, and the first that the tests run on."""
SLOTS = 16_384
FULL = 0.8
CLOCKS_NOTED_MS = 250
CLOCKS_APART_MS = 1000
MANY_SCRIPTS = 500

Info = dict[str, str]


async def check_server(app: Corral, rooms: Sequence[Room]) -> list[Finding]:
    """All there is to say of the server itself."""
    store = app.store()
    try:
        info = parse_info((await store.call("INFO", "everything")).decode("utf-8", "replace"))
    except StoreFault as error:
        return [wrong("access", f"INFO is refused: {error}", "let this user run INFO (ACL SETUSER … +info)")]
    return [
        *check_version(info),
        *_role(info),
        *_persistence(info, await _setting(store, "save"), await _setting(store, "appendfsync")),
        *_memory(info),
        *_clients(info, await _setting(store, "maxclients")),
        await _clock(store),
        *await _scripts(store, info),
        *await _cluster(app, store, info, rooms),
    ]


def parse_info(text: str) -> Info:
    """What INFO answers, by name.

    >>> parse_info("# Server\\r\\nredis_version:7.4.0\\r\\n")
    {'redis_version': '7.4.0'}
    """
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, _, value in pairs}


async def _setting(store: Store, name: str) -> str | None:
    """A setting; None where this user may not see it."""
    try:
        answer = await store.call("CONFIG", "GET", name)
    except StoreFault:
        return None
    return str(answer[1].decode("utf-8", "replace")) if len(answer) > 1 else None


def check_version(info: Info) -> Iterator[Finding]:
    """Which server it is, and whether it is young enough."""
    spoken = info.get("redis_version", "0")
    product = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {spoken}"
    number = tuple(int(part) for part in spoken.split(".")[:2] if part.isdigit())
    if number < OLDEST:
        yield wrong("version", f"{product} lacks commands that are used", "use Redis 6.2 or later, or Valkey")
    else:
        yield fine("version", product)


def _role(info: Info) -> Iterator[Finding]:
    if info.get("role") == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        yield wrong("role", f"this is a replica of {primary}: it refuses writes", f"dial {primary}")
    elif int(info.get("loading", 0)):
        yield note("role", "it is still loading its data", "wait until it has")


def _persistence(info: Info, save: str | None, fsync: str | None) -> Iterator[Finding]:
    mend = "CONFIG SET appendonly yes, then CONFIG REWRITE"
    if info.get("aof_enabled") != "1":
        kept = (
            "nothing is kept on disk: a restart loses every job"
            if save == ""
            else "only snapshots are kept: a restart loses every job since the last one"
        )
        yield wrong("persistence", f"appendonly is no, and {kept}", mend)
    elif fsync == "no":
        told = "appendfsync is no: the system decides when jobs reach the disk"
        yield note("persistence", told, "CONFIG SET appendfsync everysec")
    else:
        yield fine("persistence", f"appendonly, synced {fsync or 'as the server is set'}")
    for name, what in (("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot")):
        if info.get(name, "ok") != "ok":
            told = f"the last write of the {what} failed"
            yield wrong("persistence", told, "look into the server's log; mostly the disk is full")


def _memory(info: Info) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy", "noeviction")
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if policy != "noeviction":
        told = f"maxmemory-policy is {policy}: under memory pressure the server deletes jobs"
        yield wrong("eviction", told, "CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE")
    else:
        yield fine("eviction", "maxmemory-policy is noeviction")
    machine = int(info.get("total_system_memory", 0))
    limit, whose = (most, "its limit") if most else (machine, "the machine's memory")
    told = f"{_size(used)} used of {_size(limit)}, {whose}" if limit else f"{_size(used)} used"
    if limit and used > FULL * limit:
        yield wrong("memory", told, "raise maxmemory, or `corral queue clean` what has ended")
    elif not most:
        yield note("memory", f"{told}; no limit is set", "CONFIG SET maxmemory to what the machine can spare")
    else:
        yield fine("memory", told)


def _clients(info: Info, most: str | None) -> Iterator[Finding]:
    connected = int(info.get("connected_clients", 0))
    limit = int(info.get("maxclients") or most or 0)
    told = f"{connected} clients of at most {limit}" if limit else f"{connected} clients"
    if limit and connected > FULL * limit:
        yield wrong("clients", told, "raise maxclients (and the limit of open files), or run fewer workers")
    else:
        yield fine("clients", told)


async def _clock(store: Store) -> Finding:
    """The server's clock against ours; half of the way there and back is the doubt."""
    best: tuple[float, float] | None = None
    for _ in range(5):
        asked = time.time()
        seconds, micros = await store.call("TIME")
        answered = time.time()
        trip = (answered - asked) * 1000
        offset = (int(seconds) + int(micros) / 1e6 - (asked + answered) / 2) * 1000
        best = min(best or (trip, offset), (trip, offset))
    assert best is not None
    trip, offset = best
    told = f"the server's clock is {offset:+.1f} ms from ours, an answer takes {trip:.1f} ms"
    mend = "keep both clocks by NTP (chrony, systemd-timesyncd)"
    if abs(offset) > CLOCKS_APART_MS:
        return wrong("clock", f"{told}: delays, schedules and rates are off by as much", mend)
    if abs(offset) > CLOCKS_NOTED_MS:
        return note("clock", told, mend)
    return fine("clock", told)


async def _scripts(store: Store, info: Info) -> list[Finding]:
    try:
        await store.call("EVAL", "return 1", 0)
    except StoreFault as error:
        return [wrong("scripts", f"scripts cannot run: {error}", "let this user run them (+@scripting)")]
    count = int(info.get("number_of_cached_scripts", 0))
    told = f"{count} scripts cached, {_size(int(info.get('used_memory_scripts_eval', 0)))}"
    if count > MANY_SCRIPTS:
        mend = "find the client that writes values into its scripts; SCRIPT FLUSH empties the cache meanwhile"
        return [note("scripts", told, mend)]
    return [fine("scripts", told)]


async def _cluster(app: Corral, store: Store, info: Info, rooms: Sequence[Room]) -> list[Finding]:
    if info.get("cluster_enabled") != "1":
        return [fine("cluster", "a single server: every key in one place")]
    state = parse_info((await store.call("CLUSTER", "INFO")).decode("utf-8", "replace"))
    served = int(state.get("cluster_slots_ok", 0))
    told = f"cluster_state is {state.get('cluster_state')}, {served} of {SLOTS} slots are served"
    found = [
        fine("cluster", told)
        if state.get("cluster_state") == "ok" and served == SLOTS
        else wrong("cluster", told, "redis-cli --cluster fix HOST:PORT, or bring the missing nodes back")
    ]
    told = "version, persistence, memory, clients and scripts are those of one node"
    found.append(note("nodes", told, "corral doctor --url redis://HOST:PORT for each of the others"))
    for room in rooms:
        namespace = app.namespace(room)
        if not (room.tags_queues or has_tag(namespace)):
            advice = f"use a namespace with a hash tag, such as --namespace '{{{namespace or 'corral'}}}'"
            found.append(note("tags", f"room {room.name!r} would spread over slots as {namespace!r}", advice))
    return found


def _size(count: int) -> str:
    """Bytes as people read them.

    >>> _size(1_536), _size(3 * 2**30)
    ('1.5 KB', '3.0 GB')
    """
    size = float(count)
    for unit in ("bytes", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"
