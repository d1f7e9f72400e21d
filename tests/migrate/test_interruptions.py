"""A move that is interrupted at any command is continued by the next one: nothing is lost or doubled."""

from contextlib import suppress

import pytest

from corral.core.job import JobState
from corral.core.schedule import ScheduleRule
from corral.errors import QueueInUse, RedisError
from corral.migrate import MoveOptions, migrate, put_back
from tests.migrate.conftest import MakeSide, Side, move
from tests.support.proxy import Command, Proxy, ProxyFault

PAIRS = [
    ("bridgemq", "bullmq"),
    pytest.param("bullmq", "streams", marks=pytest.mark.faults),
    pytest.param("streams", "bridgemq", marks=pytest.mark.faults),
]
KILLS = (ProxyFault.CUT_BEFORE, ProxyFault.SWALLOW)
"""The process ends before the server has seen its command, or after the server has run it."""


WRITES = (b"EVALSHA", b"EVAL", b"HSET", b"HDEL")
"""What a move writes with; where it ends at a read, it has just ended after the write before."""


class Nth:
    """Matches the n-th command that may write, counted from 1."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, command: Command) -> bool:
        self._left -= command[0].upper() in WRITES
        return self._left == 0 and command[0].upper() in WRITES


def through(proxy: Proxy, source: str, target: Side) -> MoveOptions:
    """Return the move with both sides behind the proxy."""
    ends = (f"{proxy.url}?{source.partition('?')[2]}", f"{proxy.url}?{target.url.partition('?')[2]}")
    return MoveOptions(source=ends[0], target=ends[1], adapt=True)


async def expect_one_of_each(source: Side, target: Side, count: int) -> None:
    """Every job is at the target, once, and nothing of the move is left."""
    numbers = sorted(job.data["n"] for job in (await target.jobs()).values())
    assert numbers == list(range(count))
    listed = [*await target.listed(), *await target.listed(JobState.DELAYED)]
    assert sorted(job.data["n"] for job in listed) == list(range(count))
    assert await source.jobs() == {}
    assert await source.keys() == []


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_a_move_that_ends_at_any_command_is_continued(
    side: MakeSide, proxy: Proxy, one: str, other: str
) -> None:
    number, kills = 1, 0
    while number:
        for kill in KILLS:
            source, target = side(one, f"from{number}{kill.name}"), side(other, f"to{number}{kill.name}")
            options = through(proxy, source.url, target)
            ids = [f"own-{n}" if one != "streams" else "" for n in range(6)]
            jobs = [source.job({"n": n}, name="embed", id=job_id) for n, job_id in enumerate(ids)]
            await source.add(*jobs)
            rule = proxy.rule(Nth(number), kill)
            with suppress(RedisError):
                await migrate(options)
            if not rule.met:
                number = 0  # the move needs fewer commands than that
                break
            kills += 1
            report = await migrate(options) if await source.jobs() or await source.keys() else None
            assert report is None or report.is_verified, (number, kill, report)
            await expect_one_of_each(source, target, 6)
        else:
            number += 1
    assert kills > 10, "the move was interrupted at each of its commands"


async def test_a_schedule_that_was_on_its_way_arrives(side: MakeSide, proxy: Proxy) -> None:
    for number in range(1, 60):
        source, target = side("bridgemq", f"from{number}"), side("bullmq", f"to{number}")
        assert source.ports.schedules is not None
        assert target.ports.schedules is not None
        rule = ScheduleRule(cron="0 3 * * *", timezone="UTC")
        await source.ports.schedules.upsert(source.job({"a": 1}, id="nightly"), rule)
        await source.add(source.job({"n": 0}))
        options = through(proxy, source.url, target)
        met = proxy.rule(Nth(number), ProxyFault.SWALLOW)
        with suppress(RedisError):
            await migrate(options)
        if not met.met:
            break
        if await source.jobs() or await source.keys():
            await migrate(options)
        [schedule] = await target.ports.schedules.list()
        assert (schedule.id, schedule.rule) == ("nightly", rule), number
        assert await source.ports.schedules.list() == []
        assert [job.data for job in await target.listed()] == [{"n": 0}]
    assert number > 5


@pytest.mark.parametrize("kill", KILLS)
async def test_what_is_held_is_put_back(side: MakeSide, proxy: Proxy, kill: ProxyFault) -> None:
    source, target = side("bullmq", "from"), side("bridgemq", "to")
    await source.add(*(source.job({"n": n}, id=f"own-{n}") for n in range(5)))
    await source.add(source.job({"n": 5}, delay=60_000), source.job({"n": 6}, priority=3))
    order = [job.data["n"] for job in await source.listed()]
    options = through(proxy, source.url, target)
    proxy.rule(_is_receive, kill)
    with pytest.raises(RedisError):
        await migrate(options)
    assert await source.listed() == [], "held jobs can be claimed nowhere"
    other = side("streams", "other")
    with pytest.raises(QueueInUse, match="was interrupted; finish it with the same --to"):
        await migrate(MoveOptions(source=options.source, target=other.url, leave=True))
    with pytest.raises(QueueInUse, match="begun with other options"):
        await migrate(MoveOptions(source=options.source, target=options.target, leave=True))
    count = await put_back(options)
    arrived = sorted(job.data["n"] for job in (await target.jobs()).values())
    # a call whose reply is lost has run, or is refused when it comes after the jobs were put back
    ends = [(6, [])] if kill is ProxyFault.CUT_BEFORE else [(6, []), (0, [*range(5), 6])]
    assert (count, arrived) in ends
    if count:
        assert [job.data["n"] for job in await source.listed()] == order
    assert [job.data["n"] for job in await source.listed(JobState.DELAYED)] == [5]
    assert await source.keys() == []
    assert (await move(source, target, adapt=True)).is_verified


def _is_receive(command: Command) -> bool:
    return any(b":ledger:move-" in part for part in command)
