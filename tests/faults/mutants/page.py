"""The page with the table of mutants and what caught each."""

from collections.abc import Mapping, Sequence

from tests.faults.mutants import AREAS, PAGE, Mutant

HEAD = """# Mutants

Faults seeded in Corral's own scripts and worker runtime, applied one at a time to a copy of the tree: {count}
of them, and a test catches each. `python -m tests.faults.mutants`, a part of `make faults`, runs them and
writes this page; a mutant that survives fails it, and is a missing test. They are declared in
`tests/faults/mutants/*.toml`: a file, a text of it, and what stands in its place.
"""


def page_text(mutants: Sequence[Mutant], caught: Mapping[str, str]) -> str:
    """Return the page."""
    lines = [HEAD.format(count=len(mutants))]
    for area in AREAS:
        lines += [f"## {area}", "", "| mutant | in | caught by |", "|---|---|---|"]
        for mutant in (one for one in mutants if one.area == area):
            file = mutant.file.removeprefix("src/corral/")
            lines.append(f"| {mutant.what} | `{file}` | `{shown(caught[mutant.name])}` |")
        lines.append("")
    return "\n".join(lines)


def shown(test: str) -> str:
    """Return a test's id without the folder that all have."""
    return test.removeprefix("tests/")


def write_page(mutants: Sequence[Mutant], caught: Mapping[str, str]) -> None:
    PAGE.write_text(page_text(mutants, caught))
