"""Our cron against npm's cron-parser 4.9, around every change of the clocks in the tz database.

Where the two differ, cron-parser must be the one that loses or doubles a firing: it moves a time out of a gap
only where the gap is one hour long, begins with a full hour and does not touch midnight, and it fires a
repeated time once only where the repeated stretch is one whole hour of the clock. Ours does so always.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from corral.core.cron import Cron
from tests.support.node import node_binary, node_modules

DAY = 86_400
HOUR = 3600
FIRST, LAST = datetime(2015, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
"""Ten years that every edition of the tz database agrees on."""

FIXED = ("30 2 * * *", "0 0 * * *", "15 1 * * *", "45 23 * * *", "*/20 1-3 * * 0,6", "10 30 0,2 * * *")
EVERY_HOUR = ("0 * * * *", "*/30 * * * *")

PROGRAM = """
const load = require('module').createRequire(process.argv[1] + '/')
const parser = load('cron-parser')
const {IANAZone} = load('luxon')
// the same instants are asked for again and again, and each answer is slow: it is kept
const slow = IANAZone.prototype.offset
const known = new Map()
IANAZone.prototype.offset = function (at) {
  const key = this.name + at
  if (!known.has(key)) known.set(key, slow.call(this, at))
  return known.get(key)
}
const lines = require('readline').createInterface({input: process.stdin})
lines.on('line', line => {
  const {expr, zone, start, end} = JSON.parse(line)
  const found = []
  if (!expr) {
    for (const at of [start, end]) found.push(IANAZone.create(zone).offset(at) * 60)
    return console.log(JSON.stringify(found))
  }
  const times = parser.parseExpression(expr, {currentDate: new Date(start), tz: zone})
  for (let at = times.next().getTime(); at <= end; at = times.next().getTime()) found.push(at)
  console.log(JSON.stringify(found))
})
"""


@dataclass(frozen=True)
class Change:
    """Clocks of a zone are changed: at this second, from one offset to another."""

    zone: str
    at: int
    before: int
    after: int

    @property
    def is_plain(self) -> bool:
        """Does cron-parser handle it? By an hour, at a full hour, and not across midnight."""
        gap_begins = datetime.fromtimestamp(self.at + self.before, UTC)
        is_hour = abs(self.after - self.before) == HOUR and gap_begins.minute == 0
        touches_midnight = self.after > self.before and gap_begins.hour in (0, 23)
        return is_hour and not touches_midnight


def zones() -> list[str]:
    """Every name of the tz database, but for copies of it in other folders."""
    return sorted(
        zone
        for zone in available_timezones()
        if not zone.startswith(("posix/", "right/")) and zone not in ("localtime", "posixrules", "Factory")
    )


def changes(zone: str, first: datetime = FIRST, last: datetime = LAST) -> Iterator[Change]:
    """When the clocks of a zone were changed in those years."""
    info = ZoneInfo(zone)

    def offset(at: int) -> int:
        return int((datetime.fromtimestamp(at, info).utcoffset() or timedelta()).total_seconds())

    at, end = int(first.timestamp()), int(last.timestamp())
    while at < end:
        if offset(at) == offset(at + DAY):
            at += DAY
            continue
        low, high = at, at + DAY
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == offset(at) else (low, middle)
        yield Change(zone, high, offset(low), offset(high))
        at += DAY


def distinct(found: Iterable[Change]) -> list[Change]:
    """One of those that happen at the same second between the same offsets: all clocks show the same."""
    return list({(change.at, change.before, change.after): change for change in found}.values())


@dataclass(frozen=True)
class Question:
    change: Change
    expr: str
    reach: int
    """Seconds before and after the change that are looked at."""

    @property
    def start(self) -> int:
        return (self.change.at - self.reach) * 1000

    @property
    def end(self) -> int:
        return (self.change.at + self.reach) * 1000


def ours(question: Question) -> list[int]:
    cron, found, at = Cron.parse(question.expr, question.change.zone), [], question.start
    while (at := cron.next_after(at) or 0) and at <= question.end:
        found.append(at)
    return found


def theirs(questions: list[Question]) -> list[list[int]]:
    return _ask(
        {"expr": one.expr, "zone": one.change.zone, "start": one.start, "end": one.end} for one in questions
    )


def unlike(found: Sequence[Change]) -> list[Change]:
    """Changes that Node's tz database does not have, or has otherwise."""
    answers = _ask(
        {"zone": change.zone, "start": change.at * 1000 - 1, "end": change.at * 1000} for change in found
    )
    return [
        change
        for change, offsets in zip(found, answers, strict=True)
        if offsets != [change.before, change.after]
    ]


def _ask(questions: Iterable[dict[str, Any]]) -> list[list[int]]:
    binary = node_binary()
    assert binary is not None
    done = subprocess.run(
        [binary, "-e", PROGRAM, str(node_modules())],
        input="\n".join(map(json.dumps, questions)),
        capture_output=True, text=True, check=True, env={**os.environ, "TZ": "UTC"},
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def complaint(question: Question, mine: list[int], reference: list[int]) -> str | None:
    """What is wrong, or None where both agree, or only the reference loses or doubles a firing."""
    change = question.change
    if mine == reference:
        return None
    lost = sorted(set(mine) - set(reference))
    doubled = sorted(set(reference) - set(mine))
    moved = (change.after - change.before) * 1000
    at = change.at * 1000
    # a firing out of a gap comes no later than the gap is long; a repeated time lies in the repeated stretch
    is_lost_by_them = all(at <= firing < at + moved for firing in lost)
    is_doubled_by_them = all(at <= firing < at - moved for firing in doubled)
    if change.is_plain or not is_lost_by_them or not is_doubled_by_them:
        return f"{question}: only ours {lost}, only theirs {doubled}"
    return None


def compare(questions: list[Question]) -> tuple[list[str], int]:
    """(complaints, how many questions were answered differently though rightly)"""
    answers = theirs(questions)
    assert len(answers) == len(questions)
    found, differing = [], 0
    for question, reference in zip(questions, answers, strict=True):
        mine = ours(question)
        if wrong := complaint(question, mine, reference):
            found.append(wrong)
        elif mine != reference:
            differing += 1
    return found, differing
