"""What protocols tell of themselves, asked for whenever Prometheus asks."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from corral.core.ports import Gauge
from corral.errors import RedisError
from corral.telemetry.logs import logger


class AskedGauges(Collector):
    """Gauges that are read from the server at each scrape; while it does not answer there are none."""

    def __init__(self, read: Callable[[], Sequence[Gauge]]) -> None:
        self._read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing: registering must not ask the server."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family for each name."""
        try:
            gauges = self._read()
        except (RedisError, TimeoutError) as error:
            logger("metrics").warning("the server was not asked for its gauges", why=str(error))
            return
        families: dict[str, GaugeMetricFamily] = {}
        for gauge in gauges:
            family = families.get(gauge.name)
            if family is None:
                family = GaugeMetricFamily(gauge.name, gauge.text, labels=list(gauge.labels))
                families[gauge.name] = family
            family.add_metric(list(gauge.labels.values()), gauge.value)
        yield from families.values()
