"""The machine's own time zone, by which a cron pattern without one is read, as Node does."""

import os
from functools import cache
from pathlib import Path

from corral.core.cron import check_zone
from corral.errors import InvalidOptions

LINK = Path("/etc/localtime")
DATABASE = "zoneinfo/"


@cache
def local_zone() -> str:
    """Its name in the tz database: what TZ says, else what the machine is set to, else UTC."""
    named = os.environ.get("TZ", "").removeprefix(":")
    try:
        linked = os.readlink(LINK).partition(DATABASE)[2]
    except OSError:
        linked = ""
    for zone in (named, linked):
        try:
            return check_zone(zone)
        except InvalidOptions:
            continue
    return "UTC"
