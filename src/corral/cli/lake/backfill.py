"""`corral lake backfill`: add jobs whose events are gone to the lake."""

from dataclasses import asdict
from typing import Any

from corral.cli.lake.options import LakeArgument, QueueOption, StorageOption, addresses_of, lake_at
from corral.cli.lake.spark import SparkOptions, check_packages, in_thread, progress_bar
from corral.cli.session import Session, at_server


@at_server
async def command(
    session: Session,
    lake: LakeArgument,
    spark_options: SparkOptions,
    queue: QueueOption = "*",
    storage: StorageOption = None,
) -> None:
    """Add jobs whose events are gone, from a snapshot of the queues."""
    check_packages()
    from corral.spark.lake.backfill import backfill

    target = lake_at(lake, storage)
    addresses = await addresses_of(session, queue)

    def work() -> list[dict[str, Any]]:
        with spark_options.session(target) as spark, progress_bar(session.output, "backfill") as on_progress:
            results = [backfill(spark, target, address, on_progress) for address in addresses]
        return [
            {"protocol": address.protocol_name, **asdict(result)}
            for address, result in zip(addresses, results, strict=True)
        ]

    for result in await in_thread(work):
        session.output.document(result)
        session.output.line(
            f"protocol {result['protocol']}: {result['snapshot']:,} jobs; {result['whole']:,} of them "
            f"taken from the snapshot, {result['begun']:,} given their beginning",
        )
