"""A crew of real worker processes that can be killed, stopped and continued."""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from corral.store.keeper import dies_with_parent
from tests.support.polling import eventually

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
"""How long a worker process may take to be ready on a busy machine."""


def scaled(number: int, least: int = 1) -> int:
    """So much of it as CORRAL_FAULTS_SCALE says (1: all of it); a smaller run is a smoke, not the proof."""
    return max(int(number * float(os.environ.get("CORRAL_FAULTS_SCALE", "1"))), least)


def seeded() -> Random:
    """Chance that can be repeated: CORRAL_FAULTS_SEED, or a fresh seed, which is printed."""
    seed = int(os.environ.get("CORRAL_FAULTS_SEED") or secrets.randbits(32))
    print(f"CORRAL_FAULTS_SEED={seed}")
    return Random(seed)


class Hand:
    """One worker process."""

    def __init__(self, name: str, order: dict[str, Any]) -> None:
        self.name = name
        self.told: list[dict[str, Any]] = []
        """What it said, in order."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.chaos_worker", json.dumps({**order, "name": name})],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            preexec_fn=dies_with_parent(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # the last words of a killed process may be half a line
                    self.told.append(json.loads(line))

    def has_told(self, happening: str) -> bool:
        return any(line["happening"] == happening for line in self.told)

    @property
    def is_ready(self) -> bool:
        return self.has_told("ready")

    def wait_ready(self) -> "Hand":
        assert eventually(lambda: self.is_ready or not self.is_alive, START_S), f"{self.name} did not start"
        assert self.is_alive, f"{self.name} ended with {self._process.returncode} before it was ready"
        return self

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: no last words, no last trip; a frozen process dies of it too."""
        self._process.kill()
        self._process.wait()
        self._reader.join(5)


class Crew:
    """Worker processes of one room on one server; all of them are gone at the end of the block."""

    def __init__(self, url: str, room: str, *, concurrency: int = 8, **profile: Any) -> None:
        self._order = {"url": url, "room": room, "concurrency": concurrency, "profile": profile}
        self._names = (f"hand-{number}" for number in count(1))
        self.hands: list[Hand] = []

    def hire(self) -> Hand:
        """Start one more."""
        hand = Hand(next(self._names), self._order)
        self.hands.append(hand)
        return hand

    def wait_for_two(self) -> None:
        """Return when two are at work: one to be killed, another to mend it."""
        assert eventually(lambda: len(self._at_work()) > 1, START_S), "not two hands are at work"

    def kill_one(self, random: Random) -> None:
        """Kill one of those that are at work."""
        victim = random.choice(self._at_work())
        assert victim.is_alive, f"{victim.name} ended by itself: {victim.told}"
        self.hands.remove(victim)
        victim.kill()

    def _at_work(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.is_ready]

    def dismiss(self) -> None:
        for hand in self.hands:
            hand.kill()
        self.hands.clear()


@contextmanager
def crew(url: str, room: str, size: int, **options: Any) -> Iterator[Crew]:
    """So many workers at work."""
    hired = Crew(url, room, **options)
    try:
        for _ in range(size):
            hired.hire()
        for hand in list(hired.hands):
            hand.wait_ready()
        yield hired
    finally:
        hired.dismiss()
