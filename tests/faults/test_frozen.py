"""Workers that stand still for longer than their locks live, and handlers that stop only the loop."""

import asyncio

import pytest

from tests.support.chaos import Hand, crew, scaled, seeded
from tests.support.chaos_arena import Arena
from tests.support.polling import becomes_true, eventually

pytestmark = pytest.mark.faults

LOCK_MS = 2000
HELD = 5
END_S = 60.0
SHORT = {"lock_ms": LOCK_MS, "recover_ms": LOCK_MS // 4, "max_stalls": 1_000_000}


async def freeze_with_work(arena: Arena, hand: Hand) -> None:
    """Stop the only worker in the middle of its jobs."""
    await arena.add(HELD, how="nap", seconds=0.3, is_announced=True)
    assert eventually(lambda: len(hand.jobs_told("began")) == HELD)
    hand.freeze()


async def test_the_late_settlements_of_a_frozen_worker_are_refused_and_reported_as_lost_work(arena):
    with crew(arena.server.url, arena.protocol, 1, **SHORT) as hands:
        [frozen] = hands.hands
        await freeze_with_work(arena, frozen)
        hands.hire().wait_ready()
        assert await arena.falls_to(0, END_S)
        frozen.thaw()
        assert await becomes_true(lambda: len(frozen.jobs_told("lost")) == HELD)
    stories = arena.assert_each_completed_once()
    assert sorted(frozen.jobs_told("lost")) == sorted(stories)
    for story in stories.values():
        # the first start was found abandoned, the second ended the job; the late ending is nowhere
        assert (story.starts, story.recoveries, story.attempts) == (2, 1, 1)


async def test_a_worker_that_was_frozen_alone_ends_each_job_once(arena):
    with crew(arena.server.url, arena.protocol, 1, **SHORT) as hands:
        [frozen] = hands.hands
        await freeze_with_work(arena, frozen)
        await asyncio.sleep(3 * LOCK_MS / 1000)
        frozen.thaw()
        assert await arena.falls_to(0, END_S)
    for job_id, story in arena.assert_each_completed_once().items():
        # an attempt that was not accepted is reported as lost, and only such
        assert frozen.jobs_told("lost").count(job_id) == story.starts - 1
        assert story.attempts == 1


@pytest.mark.timeout(300)
async def test_workers_frozen_at_random_complete_no_job_twice(arena):
    random, freezes = seeded(), scaled(8, least=3)
    with crew(arena.server.url, arena.protocol, 3, **SHORT) as hands:
        for _ in range(freezes):
            await arena.add(200, how="nap", seconds=0.02)
            assert await arena.falls_to(100, END_S)
            hand = random.choice(hands.hands)
            hand.freeze()
            await asyncio.sleep(random.uniform(1.0, 2.0) * LOCK_MS / 1000)
            hand.thaw()
        assert await arena.falls_to(0, END_S)
        stories = arena.assert_each_completed_once()
        # every start that did not end its job was somebody's, and is reported by whoever it was
        vain = sum(story.starts - 1 for story in stories.values())
        assert await becomes_true(lambda: sum(len(hand.jobs_told("lost")) for hand in hands.hands) == vain)
    print(f"{freezes} freezes, {vain} late settlements refused")
    assert vain >= freezes


async def test_handlers_that_block_the_loop_for_ten_locks_run_once(arena):
    ten_locks = 10 * LOCK_MS / 1000
    # one blocks asleep, one at work under the GIL, and the third looks for what was abandoned
    with crew(arena.server.url, arena.protocol, 3, concurrency=1, **SHORT) as hands:
        await arena.add(1, how="block", seconds=ten_locks)
        await arena.add(1, how="spin", seconds=ten_locks)
        assert await arena.falls_to(0, END_S)
        assert [hand.jobs_told("lost") for hand in hands.hands] == [[], [], []]
    for story in arena.assert_each_completed_once().values():
        assert (story.starts, story.recoveries, story.attempts) == (1, 0, 1)
