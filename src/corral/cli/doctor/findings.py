"""Finding: one thing that was looked at."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How it is."""

    FINE = "fine"
    NOTE = "note"
    """Worth knowing; nothing breaks by it."""
    MEND = "mend"
    """Jobs are lost, stuck or doubled by it sooner or later."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, and what to do where it is not well."""

    check: str
    level: Level
    told: str
    mend: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The same for programs."""
        return {"check": self.check, "level": self.level.value, "finding": self.told, "mend": self.mend}


def fine(check: str, told: str) -> Finding:
    """It is well."""
    return Finding(check, Level.FINE, told)


def note(check: str, told: str, mend: str = "") -> Finding:
    """It is worth knowing."""
    return Finding(check, Level.NOTE, told, mend)


def wrong(check: str, told: str, mend: str) -> Finding:
    """It needs mending."""
    return Finding(check, Level.MEND, told, mend)
