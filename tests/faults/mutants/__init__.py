"""Mutants: seeded faults in Corral's own scripts and worker runtime, each of which a test must catch."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "mutants.md"
AREAS = ("bullmq", "streams", "bridgemq", "worker")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: a text of one file and what stands in its place, and the tests that catch it."""

    name: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Node ids for pytest; none: the short run of `corral prove`."""
    area: str

    def applied(self, source: str) -> str:
        """Return the source with the fault; the old text must be there once."""
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: its old text is {count} times in {self.file}, and should be once")
        return source.replace(self.old, self.new)

    @property
    def protocol(self) -> str:
        """The protocol whose run of `corral prove` is about it."""
        return "bullmq" if self.area == "worker" else self.area


def read_mutants() -> list[Mutant]:
    """Return every mutant that is declared, by area."""
    mutants = []
    for area in AREAS:
        declared = tomllib.loads(Path(__file__).with_name(f"{area}.toml").read_text())["mutant"]
        mutants += [
            Mutant(
                one["name"],
                one["what"],
                one["file"],
                one["old"],
                one["new"],
                tuple(one.get("tests", ())),
                area,
            )
            for one in declared
        ]
    return mutants
