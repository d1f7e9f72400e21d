"""`corral migrate` is killed again and again while both sides work: every job runs once."""

import asyncio
import random
import signal
import sys
from collections import Counter
from typing import Any

import pytest

from corral import Corral, JobState
from tests.support.apps import working
from tests.support.polling import until

pytestmark = pytest.mark.faults
JOBS = 6000
KILLS = 25
UNENDED = (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE)
PAIRS = [("bullmq", "bullmq"), ("bullmq", "bridgemq"), ("bridgemq", "streams"), ("streams", "bullmq")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("one", "other"),
    [("bullmq", "bullmq"), ("bullmq", "bridgemq"), ("bridgemq", "streams"), ("streams", "bullmq")],
)
async def test_kills_lose_and_double_nothing(url: str, one: str, other: str) -> None:
    ran: Counter[int] = Counter()
    apps = [Corral(url, protocol=p, namespaces={p: n}) for p, n in ((one, "from"), (other, "to"))]
    for app in apps:

        @app.job("embed")
        async def embed(job: Any) -> None:
            ran[job.data["n"]] += 1
            await asyncio.sleep(0.02)

    source = f"{url}?protocol={one}&namespace=from&queue={apps[0].queue().name}"
    target = f"{url}?protocol={other}&namespace=to&queue={apps[1].queue().name}"
    words = ("migrate", "--from", source, "--to", target, "--adapt", "--leave")
    kills = 0
    async with apps[0], apps[1]:
        options: dict[str, Any] = {} if one == "streams" else {"attempts": 1}
        for start in range(0, JOBS, 500):
            await (
                apps[0].queue().add_many([("embed", {"n": n}) for n in range(start, start + 500)], **options)
            )
        # one block for all: a job whose worker is stopped is put back, and begins again elsewhere
        async with working(apps[0], concurrency=5), working(apps[1], concurrency=5):
            while kills < KILLS:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "corral.cli", *words,
                    stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                )  # fmt: skip
                try:
                    await asyncio.wait_for(process.wait(), random.uniform(0.6, 1.6))
                except TimeoutError:
                    process.send_signal(signal.SIGKILL)
                    await process.wait()
                    kills += 1
                else:
                    break
            ended = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "corral.cli", *words,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, err = await ended.communicate()
            assert ended.returncode == 0, (out, err)
            assert b"verified" in out

            async def is_over() -> bool:
                counts = [await app.queue().counts() for app in apps]
                return not any(count.get(state) for count in counts for state in UNENDED)

            await until(is_over, "all jobs", seconds=200)
    assert len(ran) == JOBS
    assert set(ran.values()) == {1}, {n: count for n, count in ran.items() if count > 1}
    assert kills, "no process was killed"
