"""SQL over the tables of a lake by DuckDB, without Spark."""

from collections.abc import Mapping
from typing import Any

import duckdb

from corral.errors import InvalidOptions
from corral.spark.lake.delta import storage_errors
from corral.spark.lake.tables import TABLES, Lake


def run_query(
    lake: Lake, statement: str, parameters: Mapping[str, Any] | None = None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the titles and the rows of a query over bronze, backfill, attempts, jobs and minutes.

    The parameters are those that the query names, such as `$queue`.

    >>> run_query(Lake("history"), "select outcome, count(*) from jobs group by all")  # doctest: +SKIP
    """
    with duckdb.connect() as connection, storage_errors(lake.path):
        for name in TABLES:
            location = lake.table(name)
            if location.open() is not None:
                connection.register(f"{name}_files", location.dataset())
                # rows without a day are the positions of sources
                connection.execute(f"CREATE VIEW {name} AS FROM {name}_files WHERE date IS NOT NULL")
        connection.execute("SET enable_external_access = false")
        try:
            result = connection.execute(statement, dict(parameters or {}))
            return [column[0] for column in result.description or ()], result.fetchall()
        except duckdb.Error as error:
            raise InvalidOptions(f"the query failed: {str(error).splitlines()[0]}") from None
