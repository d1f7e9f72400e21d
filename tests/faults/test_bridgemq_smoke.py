"""A few killed workers and a little storm on the line, in the BridgeMQ room."""

from collections.abc import AsyncIterator

import pytest

from tests.faults.cuts import storm
from tests.faults.kills import assert_kills_hit, kill_at_random
from tests.support.bridgemq_arena import BridgeArena
from tests.support.chaos import seeded
from tests.support.proxy import Proxy
from tests.support.servers import Server


@pytest.fixture
async def arena(server: Server) -> AsyncIterator[BridgeArena]:
    arena = BridgeArena(server)
    yield arena
    await arena.close()


def attempts(number: int) -> int:
    """Every third job fails at first."""
    return 2 if number % 3 == 0 else 1


async def test_a_few_killed_workers_lose_no_job_and_complete_none_twice(arena: BridgeArena):
    await kill_at_random(arena, jobs=400, kills=3, random=seeded())
    assert_kills_hit(arena, 3)


async def test_commands_cut_anywhere_lose_nothing_and_spend_no_attempt_twice(
    arena: BridgeArena, proxy: Proxy
):
    cut = await storm(arena, proxy, jobs=600, random=seeded())
    assert cut >= 10
    arena.assert_attempts(attempts)
