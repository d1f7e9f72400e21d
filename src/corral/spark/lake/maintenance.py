"""Maintenance of a lake's tables: compaction, retention of days and of versions."""

import sys
import time
from collections import Counter
from datetime import date, timedelta
from functools import partial

from deltalake import DeltaTable

from corral.spark.lake.bronze import superseded
from corral.spark.lake.delta import (
    DATE,
    HOOKS,
    KEEP_VERSIONS_H,
    LakeTable,
    commit,
    files_of,
    retention,
    storage_errors,
)
from corral.spark.lake.tables import BRONZE, TABLES, Lake

COMPACT_AFTER = 16
"""Files of one day that are merged into larger ones."""
MAX_VERSIONS = 360
"""Versions of bronze that are kept where no time is set: an hour of a run with a batch every ten seconds."""


def compact(table: DeltaTable, after: int = COMPACT_AFTER) -> int:
    """Merge small files of bronze, as it was opened; return how many were merged.

    What was appended since it was opened stays as it is, so that silver finds it.
    """
    counts = Counter(file.day for file in files_of(table) if file.day is not None)
    days = [day.isoformat() for day, count in sorted(counts.items()) if count >= max(after, 2)]
    merged = 0
    with storage_errors(table.table_uri):
        if days:
            # all days at once: the table is another one afterwards
            result = table.optimize.compact([(DATE, "in", days)], post_commithook_properties=HOOKS)
            merged = int(result["numFilesRemoved"])
        old = superseded(table)
        if len(old) >= max(after, 2):
            table.update_incremental()
            commit(table, [], old)
    return merged


def retain(lake: Lake, keep_days: int, today: date) -> list[date]:
    """Delete the days before the last `keep_days`, which include today; return those that were deleted."""
    oldest = today - timedelta(days=keep_days - 1)
    dropped: set[date] = set()
    for name in TABLES:
        table = lake.table(name).open()
        days = set() if table is None else {file.day for file in files_of(table) if file.day is not None}
        old = {day for day in days if day < oldest}
        if table is not None and old:
            with storage_errors(table.table_uri):
                table.delete(f"{DATE} < '{oldest.isoformat()}'", post_commithook_properties=HOOKS)
            dropped |= old
    return sorted(dropped)


def vacuum(lake: Lake, keep_versions_h: int | None = None) -> int:
    """Delete files that no version of the last hours has, and old logs; return how many files.

    Files of a commit that never came are among them. Without a time it is that of `KEEP_VERSIONS_H`, and
    bronze keeps `MAX_VERSIONS` at most.
    """
    deleted = 0
    hours = KEEP_VERSIONS_H if keep_versions_h is None else keep_versions_h
    for name in TABLES:
        table = lake.table(name).open()
        if table is None:
            continue
        with storage_errors(table.table_uri):
            # a commit takes longer with every removed file and version that the log remembers
            kept_s = hours * 3600
            if name == BRONZE and keep_versions_h is None:
                kept_s = min(kept_s, _age_of(lake.table(name), table.version() - MAX_VERSIONS))
            kept = retention(kept_s)
            if not kept.items() <= table.metadata().configuration.items():
                table.alter.set_table_properties(kept, post_commithook_properties=HOOKS)
            sweep = partial(table.vacuum, hours, enforce_retention_duration=False, full=True)
            if sweep(dry_run=True):
                deleted += len(sweep(dry_run=False, post_commithook_properties=HOOKS))
            table.cleanup_metadata()
    return deleted


def _age_of(location: LakeTable, version: int) -> int:
    """Return the seconds since a version was written, at least one; very many where the log lacks it."""
    entry = location.filesystem().get_file_info(f"_delta_log/{version:020d}.json")
    return sys.maxsize if entry.mtime is None else max(int(time.time() - entry.mtime.timestamp()), 1)
