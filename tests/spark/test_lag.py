"""How far a stream is behind, as Prometheus sees it."""

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from corral.spark.lag import METRIC, lag_of, watch
from tests.spark.harness import SparkHarness
from tests.support.polling import eventually


def lag(registry: CollectorRegistry) -> dict[str, float]:
    """Queue -> what the gauge says."""
    return {
        sample.labels["queue"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == METRIC
    }


def test_the_gauge_says_how_many_events_wait_and_goes_with_its_query(
    spark, bullmq: SparkHarness, tmp_path: Path
):
    bullmq.add(50)
    listener = watch(spark)
    try:
        query = (
            bullmq.stream(spark, maxOffsetsPerTrigger=40)
            .writeStream.format("noop")
            .queryName("behind")
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .trigger(processingTime="1 hour")
            .start()
        )
        try:
            assert eventually(lambda: lag(listener.registry) == {bullmq.queue: 60}, 60)
            assert lag_of(query.lastProgress["sources"]) == {bullmq.queue: 60}
        finally:
            query.stop()
        assert eventually(lambda: lag(listener.registry) == {}, 60)
    finally:
        spark.streams.removeListener(listener)


def test_other_sources_and_servers_that_do_not_count_have_no_lag():
    uncounted: dict[str, Any] = {
        "endOffset": '{"mail": {"id": "1-0", "added": -1}}',
        "latestOffset": '{"mail": {"id": "9-0", "added": -1}}',
    }
    assert lag_of([uncounted, {"endOffset": "12", "latestOffset": "40"}, {"endOffset": None}]) == {}
