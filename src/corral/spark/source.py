"""CorralSource: `format("corral")`, as Spark sees it."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from corral.core import naming
from corral.errors import InvalidOptions, Unsupported
from corral.spark import options
from corral.spark.events import EventReader, EventStreamReader
from corral.spark.jobs import USUAL_PARTITIONS, JobReader
from corral.spark.schema import EVENTS, JOBS
from corral.spark.writer import JobStreamWriter, JobWriter


class CorralSource(DataSource):
    """Jobs and their events as tables, and rows as jobs.

    >>> spark.read.format("corral").option("url", url).option("queue", "mail").load()      # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        return "corral"

    def schema(self) -> StructType:
        return EVENTS if options.table(self.options) == "events" else JOBS

    def reader(self, schema: StructType) -> DataSourceReader:
        where = options.where(self.options)
        if options.table(self.options) == "events":
            return EventReader(where, options.reading(self.options))
        return JobReader(
            where,
            options.partition_count(self.options, USUAL_PARTITIONS),
            options.retry_seconds(self.options),
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if options.table(self.options) == "jobs":
            raise Unsupported(
                "the table 'jobs' is a snapshot and cannot be streamed; stream the table 'events', "
                "or read jobs with spark.read"
            )
        return EventStreamReader(options.where(self.options), options.reading(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        where, writing = self._writing(overwrite)
        return JobWriter(where, writing, schema.fieldNames())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        where, writing = self._writing(overwrite)
        return JobStreamWriter(where, writing, schema.fieldNames())

    def _writing(self, overwrite: bool) -> tuple[options.Where, options.Writing]:
        if overwrite:
            raise Unsupported('jobs are added and never replaced; use mode("append")')
        where = options.where(self.options)
        if len(where.queues) != 1 or where.has_pattern:
            raise InvalidOptions(f"jobs go to one queue, and {where.queue!r} names several; name one")
        naming.check_queue(where.queue)
        return where, options.writing(self.options)
