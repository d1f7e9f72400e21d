"""Check one server, or one node of a cluster."""

import time
from collections.abc import Iterator

from corral.doctor.results import CheckResult, fine, not_permitted, note, wrong
from corral.errors import RedisError, RedisResponseError
from corral.store.client import Store

OLDEST = (6, 2)
"""The first Redis with all the commands that Corral uses, and the first that the tests run on."""
FULL = 0.8
"""The share of a limit above which it is reported."""
MANY_SCRIPTS = 500
CLOCK_NOTED_MS = 250
CLOCK_WRONG_MS = 1000
CLOCK_READINGS = 5
"""The quickest of so many answers is the most precise."""

Info = dict[str, str]
ClockReading = tuple[float, float, float]
"""Our time before the question, the server's time, and our time after the answer; seconds."""


async def check_node(store: Store, info: Info) -> list[CheckResult]:
    """Check version, role, persistence, memory, clients, clock and scripts."""
    return [
        *check_version(info),
        *_check_role(info),
        *_check_persistence(info, await _setting(store, "save"), await _setting(store, "appendfsync")),
        *_check_memory(info),
        *_check_clients(info, await _setting(store, "maxclients")),
        await _check_clock(store),
        *await _check_scripts(store, info),
    ]


async def read_info(store: Store, *words: str) -> Info:
    """Return the fields of INFO, or of another command that answers alike."""
    answer = await store.call(*(words or ("INFO", "everything")))
    return parse_info(answer.decode("utf-8", "replace"))


def parse_info(text: str) -> Info:
    """Return the fields of an answer to INFO.

    >>> parse_info("# Server\\r\\nredis_version:7.4.0\\r\\n")
    {'redis_version': '7.4.0'}
    """
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, _, value in pairs}


async def _setting(store: Store, name: str) -> str | None:
    """Return a setting; None where this user may not read it."""
    try:
        answer = await store.call("CONFIG", "GET", name)
    except RedisError:
        return None
    return str(answer[1].decode("utf-8", "replace")) if len(answer) > 1 else None


def check_version(info: Info) -> Iterator[CheckResult]:
    """Check the version of the server."""
    version = info.get("redis_version", "0")
    product = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {version}"
    number = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if number < OLDEST:
        yield wrong(
            "version", f"{product} lacks commands that Corral uses", "use Redis 6.2 or later, or Valkey"
        )
    else:
        yield fine("version", product)


def _check_role(info: Info) -> Iterator[CheckResult]:
    if info.get("role") == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        yield wrong("role", f"this is a replica of {primary}: it refuses writes", f"connect to {primary}")
    elif int(info.get("loading", 0)):
        yield note("role", "it is still loading its data", "wait until it is done")


def _check_persistence(info: Info, save: str | None, fsync: str | None) -> Iterator[CheckResult]:
    mend = "CONFIG SET appendonly yes, then CONFIG REWRITE"
    if info.get("aof_enabled") != "1":
        match save:
            case "":
                loss = "nothing is kept on disk: a restart loses every job"
            case None:
                loss = "there may be snapshots (CONFIG GET is refused): a restart loses jobs"
            case _:
                loss = "only snapshots are kept: a restart loses every job since the last one"
        yield wrong("persistence", f"appendonly is no, and {loss}", mend)
    elif fsync == "no":
        finding = "appendfsync is no: the system decides when jobs reach the disk"
        yield note("persistence", finding, "CONFIG SET appendfsync everysec")
    else:
        yield fine("persistence", f"appendonly, synced {fsync or 'as the server is set'}")
    for name, what in (("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot")):
        if info.get(name, "ok") != "ok":
            finding = f"the last write of the {what} failed"
            yield wrong("persistence", finding, "see the server's log; often the disk is full")


def _check_memory(info: Info) -> Iterator[CheckResult]:
    policy = info.get("maxmemory_policy", "noeviction")
    used, maximum = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if policy != "noeviction":
        finding = f"maxmemory-policy is {policy}: under memory pressure the server deletes jobs"
        yield wrong("eviction", finding, "CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE")
    else:
        yield fine("eviction", "maxmemory-policy is noeviction")
    machine = int(info.get("total_system_memory", 0))
    limit, source = (maximum, "its limit") if maximum else (machine, "the machine's memory")
    finding = f"{_size(used)} used of {_size(limit)}, {source}" if limit else f"{_size(used)} used"
    if limit and used > FULL * limit:
        yield wrong("memory", finding, "raise maxmemory, or `corral queue clean` what has ended")
    elif not maximum:
        yield note("memory", f"{finding}; no limit is set", "CONFIG SET maxmemory to the memory it may use")
    else:
        yield fine("memory", finding)


def _check_clients(info: Info, maxclients: str | None) -> Iterator[CheckResult]:
    connected = int(info.get("connected_clients", 0))
    limit = int(info.get("maxclients") or maxclients or 0)
    finding = f"{connected} clients of at most {limit}" if limit else f"{connected} clients"
    if limit and connected > FULL * limit:
        yield wrong(
            "clients", finding, "raise maxclients (and the limit of open files), or run fewer workers"
        )
    else:
        yield fine("clients", finding)


async def _check_clock(store: Store) -> CheckResult:
    """Compare the server's clock with ours."""
    try:
        return judge_clock([await _read(store) for _ in range(CLOCK_READINGS)])
    except RedisResponseError as error:
        return not_permitted("TIME", error, "+time")


async def _read(store: Store) -> ClockReading:
    before = time.time()
    seconds, micros = await store.call("TIME")
    return before, int(seconds) + int(micros) / 1e6, time.time()


def judge_clock(readings: list[ClockReading]) -> CheckResult:
    """Judge the quickest reading; half of its round trip is its uncertainty.

    >>> judge_clock([(100.0, 107.5, 100.0)]).level.value, judge_clock([(100.0, 100.3, 100.8)]).level.value
    ('mend', 'fine')
    """
    before, theirs, after = min(readings, key=lambda reading: reading[2] - reading[0])
    trip = (after - before) * 1000
    offset = (theirs - (before + after) / 2) * 1000
    certain = abs(offset) - trip / 2
    finding = f"the server's clock is {offset:+.1f} ms from ours, an answer takes {trip:.1f} ms"
    mend = "synchronize both clocks by NTP (chrony, systemd-timesyncd)"
    if certain > CLOCK_WRONG_MS:
        return wrong("clock", f"{finding}: delays, schedules and rates are off by as much", mend)
    if certain > CLOCK_NOTED_MS:
        return note("clock", finding, mend)
    return fine("clock", finding)


async def _check_scripts(store: Store, info: Info) -> list[CheckResult]:
    try:
        await store.call("EVAL", "return 1", 0)
    except RedisError as error:
        return [wrong("scripts", f"scripts cannot run: {error}", "let this user run them (+@scripting)")]
    count = int(info.get("number_of_cached_scripts", 0))
    size = _size(int(info.get("used_memory_scripts_eval", 0)))
    finding = f"{count} {'script' if count == 1 else 'scripts'} cached, {size}"
    if count > MANY_SCRIPTS:
        mend = "find the client that puts values into its scripts; SCRIPT FLUSH empties the cache"
        return [note("scripts", finding, mend)]
    return [fine("scripts", finding)]


def _size(count: int) -> str:
    """Return a number of bytes with a unit.

    >>> _size(1_536), _size(3 * 2**30)
    ('1.5 KB', '3.0 GB')
    """
    size = float(count)
    for unit in ("bytes", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"
