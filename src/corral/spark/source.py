"""CorralSource: the data source behind `format("corral")`."""

import json
from collections.abc import Mapping, MutableMapping

from pyspark.sql import datasource
from pyspark.sql.types import StructField, StructType

from corral.core import naming
from corral.errors import InvalidOptions, Unsupported
from corral.spark import options
from corral.spark.events import EventReader, EventStreamReader
from corral.spark.jobs import JobReader
from corral.spark.options import EventReadOptions, JobReadOptions, QueueAddress, WriteOptions
from corral.spark.schema import EVENTS, JOBS
from corral.spark.writer import JobStreamWriter, JobWriter
from corral.store.address import without_password

COLUMNS = {"events": EVENTS, "jobs": JOBS}
OPTION = "option."
"""What Spark puts before the options of a table that is being created."""
KEPT = "corral"
"""The metadata of a table's first column that has the options of the table."""


class CorralSource(datasource.DataSource):
    """Jobs and their events as tables, and rows as jobs. All methods run on the driver.

    >>> spark.read.format("corral").option("url", url).option("queue", "mail").load()      # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        return "corral"

    def schema(self) -> StructType:
        columns = COLUMNS[options.table(self.options)]
        kept = {
            name.removeprefix(OPTION): value
            for name, value in self.options.items()
            if name.startswith(OPTION)
        }
        return with_options(columns, kept) if kept else columns

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        return _reader(self._options(schema), schema)

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802
        given = self._options(schema)
        if options.table(given) == "jobs":
            raise Unsupported(
                "the table 'jobs' is a snapshot and cannot be streamed; stream the table 'events', "
                "or read jobs with spark.read"
            )
        check_columns(schema, "events")
        return EventStreamReader(options.queue_address(given), options.parse(EventReadOptions, given))

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:
        return JobWriter(*self._target(schema, overwrite), schema.fieldNames())

    def streamWriter(self, schema: StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:  # noqa: N802
        return JobStreamWriter(*self._target(schema, overwrite), schema.fieldNames())

    def _options(self, schema: StructType) -> MutableMapping[str, str]:
        """Return the options that the table was created with, if it is one, and those of the query."""
        return datasource.CaseInsensitiveDict({**kept_options(schema), **self.options})

    def _target(self, schema: StructType, overwrite: bool) -> tuple[QueueAddress, WriteOptions]:
        if overwrite:
            raise Unsupported('jobs are added and never replaced; use mode("append")')
        given = self._options(schema)
        address = options.queue_address(given)
        if len(address.queues) != 1 or address.has_pattern:
            raise InvalidOptions(f"jobs go to one queue, and {address.queue!r} names several; name one")
        naming.check_queue(address.queue)
        return address, options.parse(WriteOptions, given)


def _reader(given: Mapping[str, str], schema: StructType) -> datasource.DataSourceReader:
    table = options.table(given)
    check_columns(schema, table)
    address = options.queue_address(given)
    if table == "events":
        return EventReader(address, options.parse(EventReadOptions, given))
    return JobReader(address, options.parse(JobReadOptions, given))


def check_columns(schema: StructType, table: str) -> None:
    """Refuse columns that are not those of the table."""
    columns = COLUMNS[table]
    if [(one.name, one.dataType) for one in schema] != [(one.name, one.dataType) for one in columns]:
        raise InvalidOptions(
            f"the columns {schema.simpleString()} are not those of the table {table!r}; leave them out: they "
            f"are always {columns.simpleString()}"
        )


def with_options(columns: StructType, given: Mapping[str, str]) -> StructType:
    """Return the columns of a table that is being created, with its options as metadata of the first one.

    Spark 4.3 gives a reader of a table in its catalog the columns of the table and not its options.
    """
    # wrong options are refused now and not by the first query
    _reader(datasource.CaseInsensitiveDict(given), columns)
    url = given.get("url", "")
    if without_password(url) != url:
        raise InvalidOptions(
            "the url has a password, and a table's options are kept in the catalog and with its columns; "
            "leave url out and set REDIS_URL where the driver runs, or use CREATE TEMPORARY VIEW"
        )
    first, *rest = columns.fields
    kept = StructField(first.name, first.dataType, first.nullable, {KEPT: json.dumps(dict(given))})
    return StructType([kept, *rest])


def kept_options(columns: StructType) -> dict[str, str]:
    """Return the options that `with_options` has put there."""
    kept: dict[str, str] = json.loads(columns[0].metadata.get(KEPT, "{}")) if len(columns) else {}
    return kept
