"""Large moves run in Spark's executors, with the same steps."""

from typing import Any

import pytest

from corral.migrate import MoveOptions
from corral.spark.migrate import migrate_on_spark
from corral.store.client import Store
from tests.migrate.conftest import Side


@pytest.mark.faults
async def test_executors_move_all_jobs_once(spark: Any, store: Store, url: str) -> None:
    source, target = (Side("bullmq", store, url, namespace) for namespace in ("from", "to"))
    count = 1500
    await source.add(*(source.job({"n": n}) for n in range(count)))
    await source.add(source.job({"n": count}, delay=86_400_000))
    options = MoveOptions(source=source.url, target=target.url)
    report = await migrate_on_spark(options, lanes=2)
    assert (report.count, report.total, report.received) == (count + 1, count + 1, count + 1)
    assert report.is_verified, report
    assert sorted(job.data["n"] for job in (await target.jobs()).values()) == list(range(count + 1))
    assert await source.jobs() == {}
