"""CorralSource: the data source behind `format("corral")`."""

from pyspark.sql import datasource
from pyspark.sql.types import StructType

from corral.core import naming
from corral.errors import InvalidOptions, Unsupported
from corral.spark import options
from corral.spark.events import EventReader, EventStreamReader
from corral.spark.jobs import JobReader
from corral.spark.options import EventReadOptions, JobReadOptions, QueueAddress, WriteOptions
from corral.spark.schema import EVENTS, JOBS
from corral.spark.writer import JobStreamWriter, JobWriter


class CorralSource(datasource.DataSource):
    """Jobs and their events as tables, and rows as jobs. All methods run on the driver.

    >>> spark.read.format("corral").option("url", url).option("queue", "mail").load()      # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        return "corral"

    def schema(self) -> StructType:
        return EVENTS if options.table(self.options) == "events" else JOBS

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        address = options.queue_address(self.options)
        if options.table(self.options) == "events":
            return EventReader(address, options.parse(EventReadOptions, self.options))
        return JobReader(address, options.parse(JobReadOptions, self.options))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802
        if options.table(self.options) == "jobs":
            raise Unsupported(
                "the table 'jobs' is a snapshot and cannot be streamed; stream the table 'events', "
                "or read jobs with spark.read"
            )
        address = options.queue_address(self.options)
        return EventStreamReader(address, options.parse(EventReadOptions, self.options))

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:
        return JobWriter(*self._target(overwrite), schema.fieldNames())

    def streamWriter(self, schema: StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:  # noqa: N802
        return JobStreamWriter(*self._target(overwrite), schema.fieldNames())

    def _target(self, overwrite: bool) -> tuple[QueueAddress, WriteOptions]:
        if overwrite:
            raise Unsupported('jobs are added and never replaced; use mode("append")')
        address = options.queue_address(self.options)
        if len(address.queues) != 1 or address.has_pattern:
            raise InvalidOptions(f"jobs go to one queue, and {address.queue!r} names several; name one")
        naming.check_queue(address.queue)
        return address, options.parse(WriteOptions, self.options)
