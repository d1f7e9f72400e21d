"""Is one server, or one node of a cluster, one that jobs can be trusted to?"""

from collections.abc import Iterator

from corral.cli.doctor.clock import check_clock
from corral.cli.doctor.findings import Finding, fine, note, wrong
from corral.errors import RedisError
from corral.store.client import Store

OLDEST = (6, 2)
"""The first Redis with all the commands that are used, and the first that the tests run on."""
FULL = 0.8
MANY_SCRIPTS = 500

Info = dict[str, str]


async def check_node(store: Store, info: Info) -> list[Finding]:
    """All there is to say of it alone."""
    return [
        *check_version(info),
        *_role(info),
        *_persistence(info, await _setting(store, "save"), await _setting(store, "appendfsync")),
        *_memory(info),
        *_clients(info, await _setting(store, "maxclients")),
        await check_clock(store),
        *await _scripts(store, info),
    ]


async def ask_info(store: Store, *words: str) -> Info:
    """What INFO, or these words, answer."""
    answer = await store.call(*(words or ("INFO", "everything")))
    return parse_info(answer.decode("utf-8", "replace"))


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
    except RedisError:
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
        match save:
            case "":
                kept = "nothing is kept on disk: a restart loses every job"
            case None:
                kept = "there may be snapshots (CONFIG GET is refused): a restart loses jobs"
            case _:
                kept = "only snapshots are kept: a restart loses every job since the last one"
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


async def _scripts(store: Store, info: Info) -> list[Finding]:
    try:
        await store.call("EVAL", "return 1", 0)
    except RedisError as error:
        return [wrong("scripts", f"scripts cannot run: {error}", "let this user run them (+@scripting)")]
    count = int(info.get("number_of_cached_scripts", 0))
    size = _size(int(info.get("used_memory_scripts_eval", 0)))
    told = f"{count} {'script' if count == 1 else 'scripts'} cached, {size}"
    if count > MANY_SCRIPTS:
        mend = "find the client that writes values into its scripts; SCRIPT FLUSH empties the cache meanwhile"
        return [note("scripts", told, mend)]
    return [fine("scripts", told)]


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
