"""Large moves of jobs: the same steps as in one process, in as many as a Spark has slots."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from corral.migrate import MoveOptions, MoveReport, move_all, open_move, prepare

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


async def migrate_on_spark(
    options: MoveOptions, master: str | None = None, *, paused: bool = False, lanes: int | None = None
) -> MoveReport:
    """Move the jobs and schedules of a queue in the executors of a Spark.

    Each of `lanes` tasks moves pages of jobs, one behind the other; a task that is lost is repeated, and what
    it held is delivered at the end, by the driver, like what else is left. The order of jobs is kept but for
    the pages that are moved at the same time.
    """
    from corral.spark.session import session

    async with open_move(options) as move:
        await prepare(move, paused)
        run, is_resumed = await move.begin()
        mover = move.mover(run.id)
        mover.report.is_resumed = is_resumed
        spark = session(master, name="corral-migrate")
        for report in await asyncio.to_thread(_on_executors, spark, options, run.id, lanes):
            report.left.clear()  # what is left is found again, below
            mover.report.merge(report)
        await move_all(move, mover, run, lambda _: None)
        return await move.finish(mover)


def _on_executors(
    spark: "SparkSession", options: MoveOptions, run: str, lanes: int | None
) -> list[MoveReport]:
    count = lanes or int(spark.conf.get("spark.default.parallelism", "") or 0) or 4
    packed = msgspec.msgpack.encode(options)

    def move(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            numbers = batch.column(0).to_pylist()
            reports = [move_lane(packed, run, lane) for lane in numbers]
            yield pa.RecordBatch.from_pydict({"report": reports})

    rows: list[Any] = spark.range(0, count, 1, count).mapInArrow(move, "report binary").collect()
    return [msgspec.msgpack.decode(row.report, type=MoveReport) for row in rows]


def move_lane(packed: bytes, run: str, lane: int) -> bytes:
    """Move jobs in one lane until there are none (runs on an executor); return the report, packed."""
    options = msgspec.msgpack.decode(packed, type=MoveOptions)

    async def work() -> MoveReport:
        async with open_move(options) as move:
            mover = move.mover(run)
            for state in options.states:
                await mover.drain(state, lambda _: None, lane)
            await mover.compare()
            return mover.report

    return msgspec.msgpack.encode(asyncio.run(work()))
