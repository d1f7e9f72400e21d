"""One module a measurement."""

from bench.measure import Measure
from bench.measures import adds_at_once, bulk_add, latency, one_add, processing

MEASURES: tuple[Measure, ...] = (
    bulk_add.MEASURE,
    processing.MEASURE,
    one_add.MEASURE,
    adds_at_once.MEASURE,
    latency.MEASURE,
)
