"""Transient or permanent: the one classification table."""

from enum import StrEnum


class Verdict(StrEnum):
    TRANSIENT = "transient"
    PERMANENT = "permanent"


def classify(error: BaseException) -> Verdict:
    """Is it worth another attempt?"""
    return Verdict.PERMANENT
