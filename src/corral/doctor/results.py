"""CheckResult: what one check of the doctor found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How serious a finding is."""

    FINE = "fine"
    NOTE = "note"
    """Worth knowing; nothing breaks."""
    MEND = "mend"
    """Jobs will be lost, stuck or duplicated sooner or later."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check, and how to mend what is wrong."""

    check: str
    level: Level
    finding: str
    mend: str = ""
    node: str = ""
    """The master of a cluster that was checked; empty where it concerns the whole."""

    @property
    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        fields = {"check": self.check, "level": self.level.value, "finding": self.finding, "mend": self.mend}
        return {**fields, "node": self.node} if self.node else fields


def fine(check: str, finding: str) -> CheckResult:
    """Return a result without a problem."""
    return CheckResult(check, Level.FINE, finding)


def note(check: str, finding: str, mend: str = "") -> CheckResult:
    """Return a result worth knowing."""
    return CheckResult(check, Level.NOTE, finding, mend)


def wrong(check: str, finding: str, mend: str) -> CheckResult:
    """Return a result that needs mending."""
    return CheckResult(check, Level.MEND, finding, mend)


def not_permitted(command: str, error: Exception, permission: str) -> CheckResult:
    """Return the result of a check that this user may not run."""
    return note(
        "access", f"{command} is refused: {error}", f"let this user run it: ACL SETUSER … {permission}"
    )


def merge_nodes(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Merge the results that masters of a cluster have in common; what needs mending stays apart.

    >>> one = CheckResult("version", Level.FINE, "Valkey 9.1.2", node="a:1")
    >>> [result.finding for result in merge_nodes([one, replace(one, node="b:2")])]
    ['all 2 masters: Valkey 9.1.2']
    """
    groups: dict[tuple[str, ...], list[CheckResult]] = {}
    order = list(dict.fromkeys(result.check for result in results))
    for result in sorted(results, key=lambda result: order.index(result.check)):
        finding = "" if result.node and result.level is not Level.MEND else result.finding
        key = (result.check, result.level, finding, "node" if result.node else "")
        groups.setdefault(key, []).append(result)
    masters = len({result.node for result in results if result.node})
    return [_merge(group, masters) for group in groups.values()]


def _merge(group: Sequence[CheckResult], masters: int) -> CheckResult:
    first = group[0]
    if not first.node:
        return first
    finding = first.finding
    if len({result.finding for result in group}) > 1:
        finding = f"{finding}, at {first.node}"
    nodes = ", ".join(result.node for result in group)
    where = f"all {masters} masters" if len(group) == masters > 1 else nodes
    return replace(first, finding=f"{where}: {finding}")
