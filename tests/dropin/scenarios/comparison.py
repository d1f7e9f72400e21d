"""Two results of one scenario, compared: what calls returned, what workers told, and every key.

Moments of the run, and those it has planned, are the same for all; ids made of them are numbered by their
order, ids made at random are called by their jobs' names; prefixes are alike. A stack trace is its language's
own: that it is there is compared, and how many there are.
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from tests.dropin.scenarios.run import Result
from tests.support.compare import differences
from tests.support.keyspace import Entry, Keyspace

AHEAD_MS = 400 * 86_400_000
"""How far ahead a scenario plans: a year, by a cron pattern."""
BEFORE_MS = 70_000
"""The slot of a scheduler that a moment is in may have begun before it."""
DELAY_UNIT = 4096
A_MOMENT = "1111111111111"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")
MOMENT = re.compile(r"(?<![\d.])\d{13}(?:\.\d+)?(?!\d)")
UNSET_AS_ZERO = ("processedOn", "finishedOn", "delay", "priority", "progress")
"""Fields of a job that Node leaves undefined where the official Python client has 0."""
OF_A_SCHEDULER = ("delay", "offset", "jobId")
"""Of a job that a scheduler returns, in Node with `undefined` in its `jobId`."""
SINCE_A_MOMENT = ("delay", "offset")
"""Of a scheduler and its jobs: the time from the call on, and where in an interval that is."""
OWN_KEYS = (":marks",)
"""What a handler reported is marked for the life of a lock, beside what Node writes."""


def deviations(theirs: Result, ours: Result) -> list[str]:
    """What is not the same, one sentence each."""
    left, right = _Mask(theirs), _Mask(ours)
    found = [
        f"answer {place}: theirs {one!r}, ours {other!r}"
        for place, (one, other) in enumerate(
            zip(left.plain(theirs.answers), right.plain(ours.answers), strict=True)
        )
        if one != other
    ]
    for one, other in zip(left.plain(theirs.told), right.plain(ours.told), strict=True):
        if one != other:
            found.append(f"told: theirs {one!r}, ours {other!r}")
    for name in theirs.keyspaces:
        spaces = left.space(theirs.keyspaces[name]), right.space(ours.keyspaces[name])
        found += [f"{name}: {difference}" for difference in differences(*spaces)]
    return found


@dataclass
class _Mask:
    """The same words for what differs from run to run."""

    result: Result

    def __post_init__(self) -> None:
        names: dict[str, str] = {}
        moments: set[str] = set()
        for space in self.result.keyspaces.values():
            for key, entry in space.items():
                if UUID.fullmatch(key) and entry.kind == "hash" and b"name" in map(str.encode, entry.value):
                    names[key] = f"<{entry.value['name'].decode()}>"
                moments.update(re.findall(r"repeat:[^:]+:(\d{13})", key))
        self._names = names
        self._ranks = {moment: f"<moment {rank}>" for rank, moment in enumerate(sorted(moments), 1)}

    def text(self, text: str) -> str:
        text = re.sub(r"\b(nn|nc|cn|cc)-run:", "run:", text)
        text = UUID.sub(lambda match: self._names.get(match[0], match[0]), text)
        text = re.sub(
            r"(repeat:[^:]+:)(\d{13})", lambda match: match[1] + self._ranks.get(match[2], match[2]), text
        )
        text = MOMENT.sub(lambda match: A_MOMENT if self.is_moment(float(match[0])) else match[0], text)
        return re.sub(r"\n +", " ", text)

    def is_moment(self, number: float) -> bool:
        return self.result.begin - BEFORE_MS <= number <= self.result.end + AHEAD_MS

    def plain(self, value: Any) -> Any:
        """What a client returned."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and self.is_moment(value):
            return int(A_MOMENT)
        if isinstance(value, list | tuple):
            return [self.plain(each) for each in value]
        if isinstance(value, dict):
            scheduled = bool(value.get("repeatJobKey") or value.get("repeat") or value.get("every"))
            return {
                self.text(str(name)): self.plain(each)
                for name, each in value.items()
                if each is not None
                and not (name in UNSET_AS_ZERO and each == 0)
                and not (name == "data" and each == {})
                and not (scheduled and name in OF_A_SCHEDULER)
            }
        return value

    def space(self, space: Keyspace) -> Keyspace:
        masked = {}
        for key, entry in space.items():
            if key.endswith(OWN_KEYS):
                assert entry.ttl is not None, f"{key} is for ever"
                continue
            # how long a key lives is compared by the tests with a set clock; here, whether it ends
            ttl = None if entry.ttl is None else 1
            masked[self.text(key)] = replace(entry, value=self.value(key, entry), ttl=ttl)
        return masked

    def value(self, key: str, entry: Entry) -> Any:
        match entry.kind:
            case "hash":
                return {self.text(name): self._field(key, name, value) for name, value in entry.value.items()}
            case "list":
                return [self.raw(each) for each in entry.value]
            case "set":
                return sorted(self.raw(each) for each in entry.value)
            case "zset":
                unit = DELAY_UNIT if key == "delayed" else 1
                # of those that ended in one millisecond, the order is that of their ids
                return sorted(
                    (self.raw(member), -1 if self.is_moment(score / unit) else score)
                    for member, score in entry.value
                )
            case "stream":
                return [
                    ("", [(name, self.raw(value)) for name, value in fields]) for _, fields in entry.value
                ]
        return entry.value if key.endswith(":lock") else self.raw(entry.value)

    def _field(self, key: str, name: str, value: bytes) -> bytes:
        if name == "stacktrace":
            return str(len(json.loads(value))).encode()
        if key.startswith("repeat:"):
            if name in SINCE_A_MOMENT:
                return b"<ms>"
            if name == "opts":
                value = re.sub(rb'"(delay|offset)":[1-9]\d*', rb'"\1":1', value)
        if name == "delay" and len(value) > 4:
            # until a moment that the client has named; it has moved on by some milliseconds
            return b"%d000" % round(int(value) / 1000)
        return self.raw(value)

    def raw(self, value: bytes) -> bytes:
        try:
            return self.text(value.decode()).encode()
        except UnicodeDecodeError:
            return value
