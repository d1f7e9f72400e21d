"""Gauge: one number that a protocol tells of itself."""

from msgspec import Struct


class Gauge(Struct, frozen=True):
    """A number with its name, what it says, and labels where there are several of the name."""

    name: str
    text: str
    value: float
    labels: dict[str, str] = {}
