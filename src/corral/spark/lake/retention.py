"""Retention: days that are old enough leave every table, whole."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

from corral.spark.lake import bronze
from corral.spark.lake.layout import ATTEMPTS, BACKFILL, BRONZE, JOBS, MINUTES, Lake
from corral.spark.lake.refreshing import day_of

OWN_WORDS = ("generation", "at")


def retain(lake: Lake, keep_days: int, today: date) -> list[date]:
    """Drop the days before the last `keep_days`, today among them; those that are gone."""
    oldest = today - timedelta(days=keep_days - 1)
    gone: set[date] = set()
    for table in (MINUTES, JOBS, ATTEMPTS, BACKFILL):
        gone |= _drop(lake, table, oldest)
    with lake.turning():
        gone |= _drop(lake, BRONZE, oldest)
    return sorted(gone)


def _drop(lake: Lake, table: str, oldest: date) -> set[date]:
    generations = lake.generations(table)
    current = generations.current()
    if current is None:
        return set()
    days = {day_of(file.relative_to(current)) for file in generations.files()}
    gone = {day for day in days if day is not None and day < oldest}
    if gone:
        manifest: dict[str, Any] = generations.manifest()
        if table == BRONZE:
            manifest |= bronze.standing(lake)
        told = {word: value for word, value in manifest.items() if word not in OWN_WORDS}
        generations.advance(told, lambda relative: _stays(relative, gone))
    return gone


def _stays(relative: Path, gone: set[date]) -> bool:
    return day_of(relative) not in gone
