"""A little storm on the line: the small sister of test_cuts."""

from tests.faults.cuts import expected, storm
from tests.support.chaos import seeded


async def test_commands_cut_anywhere_lose_nothing_and_spend_no_attempt_twice(arena, proxy):
    cut = await storm(arena, proxy, jobs=600, random=seeded())
    assert cut >= 10
    arena.assert_attempts(expected(arena))
