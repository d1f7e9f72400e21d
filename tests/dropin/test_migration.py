"""Programs written for the official client run with nothing changed but the import.

What each prints was recorded from the official client; it must print the same on Corral, and where the
official client is installed, there too.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.official import official_python, official_version
from tests.support.servers import Server

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(program.stem for program in PROGRAMS.glob("*.py"))
LONGEST_S = 100.0
_IMPORT = re.compile(r"^(from|import) bullmq\b", re.MULTILINE)


def migrated(text: str) -> str:
    """Return the program with its imports changed, and nothing else."""
    return _IMPORT.sub(r"\1 corral.bullmq", text)


def run(python: Path | str, program: Path, url: str) -> Any:
    """Run the program and return the document it prints."""
    done = subprocess.run(
        [str(python), str(program), url], capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return json.loads(done.stdout)


def recorded(name: str) -> Any:
    return json.loads((PROGRAMS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_program_for_the_official_client_runs_with_only_its_import_changed(
    server: Server, tmp_path: Path, name: str
) -> None:
    text = (PROGRAMS / f"{name}.py").read_text()
    changed = migrated(text)
    before, after = text.splitlines(), changed.splitlines()
    assert [line for line in after if line not in before], "the program imports nothing from bullmq"
    assert all(
        new == old or (old.startswith(("from bullmq", "import bullmq")) and "corral.bullmq" in new)
        for old, new in zip(before, after, strict=True)
    )
    program = tmp_path / f"{name}.py"
    program.write_text(changed)
    assert run(sys.executable, program, server.url) == recorded(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_official_client_gives_what_was_recorded(server: Server, name: str) -> None:
    if official_version() is None:
        pytest.skip(f"the official client is not installed at {official_python()}: run `make setup`")
    assert run(official_python(), PROGRAMS / f"{name}.py", server.url) == recorded(name)
