"""Peer: whoever is measured, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from tests.support.node import PACKAGES, node_binary, node_modules, why_no_node

ROOT = Path(__file__).resolve().parent.parent
LONGEST_S = 600.0

Task = Mapping[str, Any]
"""What to do: `measure`, `url`, `count`, and what else the measure names."""
Reading = Mapping[str, Any]
"""What came of it: `count`, `seconds`, `own_cpu_s` and `server_cpu_s`, or `latencies_ms`."""


class Peer(Protocol):
    """One job system under measurement.

    A peer takes an task, carries it out in a fresh process of its own on the server at `task["url"]`,
    and answers with a reading. What every measure asks of it stands in that measure's module.
    """

    @property
    def name(self) -> str:
        """How the table calls it."""

    def measure(self, task: Task) -> Reading:
        """Carry out a task."""


@dataclass(frozen=True)
class ProcessPeer:
    """A peer whose driver takes the task as its last argument and prints the reading as its last line."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def measure(self, task: Task) -> Reading:
        done = subprocess.run(
            [*self.command, json.dumps(task)],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            timeout=LONGEST_S,
            check=True,
        )
        reading: Reading = json.loads(done.stdout.splitlines()[-1])
        return reading


BASELINE = "Node BullMQ 5.62.0"
NEWEST = "Node BullMQ 6.7.0"
DROP_IN = "Corral's drop-in"


def peers() -> list[Peer]:
    """Everyone who can be measured here, the one that the others are compared with first."""
    reason = why_no_node() or why_no_node(6)
    node = node_binary()
    if reason is not None or node is None:
        raise SystemExit(f"the baseline cannot be measured: {reason}")
    found: list[Peer] = [
        _node(BASELINE, node, 5),
        _node(NEWEST, node, 6),
        _corral("Corral", "asyncio"),
        ProcessPeer(DROP_IN, [sys.executable, "-m", "bench.drivers.dropin_driver"]),
    ]
    if find_spec("uvloop") is not None:
        found.append(_corral("Corral, uvloop", "uvloop"))
    return found


def _node(name: str, binary: str, generation: int) -> Peer:
    environment = {"CORRAL_NODE_MODULES": str(node_modules()), "CORRAL_NODE_PACKAGE": PACKAGES[generation]}
    return ProcessPeer(name, [binary, "bench/node/driver.js"], environment)


def _corral(name: str, loop: str) -> Peer:
    return ProcessPeer(name, [sys.executable, "-m", "bench.drivers.corral_driver", loop])
