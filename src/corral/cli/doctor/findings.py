"""Finding: one thing that was looked at."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    node: str = ""
    """Which master of a cluster it is of; empty: of all there is."""

    @property
    def document(self) -> dict[str, Any]:
        """The same for programs."""
        document = {"check": self.check, "level": self.level.value, "finding": self.told, "mend": self.mend}
        return {**document, "node": self.node} if self.node else document


def fine(check: str, told: str) -> Finding:
    """It is well."""
    return Finding(check, Level.FINE, told)


def note(check: str, told: str, mend: str = "") -> Finding:
    """It is worth knowing."""
    return Finding(check, Level.NOTE, told, mend)


def wrong(check: str, told: str, mend: str) -> Finding:
    """It needs mending."""
    return Finding(check, Level.MEND, told, mend)


def unseen(what: str, error: Exception, right: str) -> Finding:
    """It cannot be looked at by this user."""
    return note("access", f"{what} is refused: {error}", f"let this user run it: ACL SETUSER … {right}")


def folded(findings: Sequence[Finding]) -> list[Finding]:
    """The same for people: what masters have in common is said once; what is to be mended, for each.

    >>> one = Finding("version", Level.FINE, "Valkey 9.1.2", node="a:1")
    >>> [finding.told for finding in folded([one, replace(one, node="b:2")])]
    ['all 2 masters: Valkey 9.1.2']
    """
    groups: dict[tuple[str, ...], list[Finding]] = {}
    order = list(dict.fromkeys(finding.check for finding in findings))
    for finding in sorted(findings, key=lambda finding: order.index(finding.check)):
        told = "" if finding.node and finding.level is not Level.MEND else finding.told
        key = (finding.check, finding.level, told, "of a node" if finding.node else "")
        groups.setdefault(key, []).append(finding)
    masters = len({finding.node for finding in findings if finding.node})
    return [_said_once(group, masters) for group in groups.values()]


def _said_once(group: Sequence[Finding], masters: int) -> Finding:
    first = group[0]
    if not first.node:
        return first
    told = first.told
    if len({finding.told for finding in group}) > 1:
        told = f"{told}, at {first.node}"
    nodes = ", ".join(finding.node for finding in group)
    whose = f"all {masters} masters" if len(group) == masters > 1 else nodes
    return replace(first, told=f"{whose}: {told}")
