"""`python -m tests.faults.mutants`: apply each mutant to a copy of the tree; a test must catch it."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.mutants import PAGE, ROOT, Mutant, read_mutants
from tests.faults.mutants.page import write_page

PROVE = "tests/faults/prove/test_prove.py::test_a_short_run_under_faults_breaks_no_promise"
COPIED = ("src", "tests", "docs", "examples", "README.md", "pyproject.toml", "package.json")
LINKED = (".make", "node_modules")
PLUGINS = ("-p", "anyio", "-p", "pytest_timeout", "-p", "xdist.plugin")
"""Those that the tests need; the others take longer to be imported than most tests to run."""
TEST_TIMEOUT_S = 60
PROVE_TIMEOUT_S = 150
SEEN = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
CANDIDATES = {
    "bullmq": ("tests/contract/test_contract.py", "tests/protocols/bullmq", "tests/worker"),
    "streams": ("tests/contract/test_contract.py", "tests/protocols/streams"),
    "bridgemq": ("tests/contract/test_contract.py", "tests/protocols/bridgemq"),
    "worker": ("tests/worker", "tests/unit", "tests/contract/test_contract.py", "tests/app"),
}
"""Where a test is looked for that catches a mutant of an area."""
NOT_OF_AREA = {
    "bullmq": ("-k", "not streams and not bridgemq"),
    "streams": ("-k", "not bullmq and not bridgemq"),
    "bridgemq": ("-k", "not bullmq and not streams"),
}


class Tree:
    """A copy of the source tree, in which one mutant at a time is applied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writes = 0
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(source, folder / name, ignore=ignored)
            else:
                shutil.copy(source, folder / name)
        for name in LINKED:
            if (ROOT / name).exists():
                (folder / name).symlink_to((ROOT / name).resolve())

    @contextmanager
    def with_mutant(self, mutant: Mutant) -> Iterator[None]:
        """Apply the mutant within the block."""
        path = self.folder / mutant.file
        source = path.read_text()
        self._write(path, mutant.applied(source))
        try:
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: str) -> None:
        """Write a file with a time of its own, by which Python knows that its bytecode is outdated."""
        path.write_text(source)
        self._writes += 1
        os.utime(path, (self._writes, self._writes))

    def first_failure(self, tests: Sequence[str], timeout_s: int = TEST_TIMEOUT_S) -> str | None:
        """Run tests until one fails; return its id, None where all pass."""
        words = [sys.executable, "-m", "pytest", *PLUGINS, "-x", "-q", "-rfE", "-m", "not faults"]
        ended = subprocess.run(
            [*words, f"--timeout={timeout_s}", "--session-timeout=600", *tests],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(self.folder / "src"),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode == 0:
            return None
        if ended.returncode not in (1, 2):
            raise RuntimeError(
                f"pytest ended with {ended.returncode}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
            )
        seen = SEEN.search(ended.stdout)
        return seen.group(1) if seen else f"(a hang, or an error of pytest: {ended.stdout[-300:]!r})"

    def caught_by(self, mutant: Mutant, is_finding: bool) -> str | None:
        """Return the test that catches the mutant."""
        with self.with_mutant(mutant):
            if is_finding:
                candidates = [*CANDIDATES[mutant.area], *NOT_OF_AREA.get(mutant.area, ())]
                return self.first_failure(candidates) or self.first_failure(
                    [short_run(mutant)], PROVE_TIMEOUT_S
                )
            return self.first_failure(tests_of(mutant), TEST_TIMEOUT_S if mutant.tests else PROVE_TIMEOUT_S)


def short_run(mutant: Mutant) -> str:
    """Return the short run of `corral prove` in the mutant's protocol."""
    return f"{PROVE}[{mutant.protocol}]"


def tests_of(mutant: Mutant) -> tuple[str, ...]:
    """Return the tests of which one must catch the mutant."""
    return mutant.tests or (short_run(mutant),)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 1 if a mutant survives."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these; without a name all, and the page is written")
    parser.add_argument("--find", action="store_true", help="look in all tests of its area")
    parser.add_argument("--no-baseline", action="store_true", help="trust the tests to pass without a mutant")
    options = parser.parse_args(arguments)
    mutants = [
        one for one in read_mutants() if not options.names or {one.name, one.area} & set(options.names)
    ]
    for mutant in mutants:
        mutant.applied((ROOT / mutant.file).read_text())  # before an hour is spent on those before it
    survivors = []
    caught: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="corral-mutants-") as folder:
        tree = Tree(Path(folder))
        tests = sorted({test for mutant in mutants for test in tests_of(mutant)})
        is_trusted = options.find or options.no_baseline
        failure = None if is_trusted else tree.first_failure(tests, PROVE_TIMEOUT_S)
        if failure is not None:
            print(f"{failure} fails without a mutant: it can catch none", file=sys.stderr)
            return 2
        for mutant in mutants:
            start = time.monotonic()
            test = tree.caught_by(mutant, options.find)
            print(f"{mutant.name}\t{test or 'SURVIVED'}\t{time.monotonic() - start:.1f} s", flush=True)
            if test is None:
                survivors.append(mutant.name)
            else:
                caught[mutant.name] = test
    print(f"{len(mutants)} mutants, {len(survivors)} survived: {', '.join(survivors) or 'none'}")
    if not options.names and not options.find and not survivors:
        write_page(mutants, caught)
        print(f"written: {PAGE.relative_to(ROOT)}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
