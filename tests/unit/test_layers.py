"""The layers are drawn in pyproject.toml; here each line is crossed once, to see that it holds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import corral

ROOT = Path(__file__).resolve().parents[2]


def lint(house: Path) -> subprocess.CompletedProcess[str]:
    """What import-linter says of the package in `house`."""
    program = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", program, "--config", str(ROOT / "pyproject.toml"), "--no-cache", "--no-logo"],
        env={**os.environ, "PYTHONPATH": str(house)}, cwd=house, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the package, to be spoilt."""
    shutil.copytree(
        Path(corral.__file__).parent, tmp_path / "corral", ignore=shutil.ignore_patterns("__pycache__", "lua")
    )
    return tmp_path


def test_the_house_keeps_its_layers(house: Path) -> None:
    said = lint(house)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "0 broken" in said.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("core/job.py", "import corral.store.client", "Imports go one way"),
        ("core/job.py", "import asyncio", "The core is pure"),
        ("store/client.py", "import corral.protocols.base", "Imports go one way"),
        (
            "protocols/streams/broker.py",
            "import corral.protocols.bullmq.keys",
            "Protocols never import each other",
        ),
        ("protocols/bullmq/codec.py", "import corral.store.client", "A protocol's keys and codec are pure"),
        ("protocols/streams/keys.py", "import redis", "A protocol's keys and codec are pure"),
        ("protocols/bullmq/broker.py", "import redis.asyncio", "Only the store speaks to redis-py"),
        ("worker/handlers.py", "import corral.store.client", "The worker knows no server and no protocol"),
        (
            "worker/handlers.py",
            "import corral.protocols.streams.keys",
            "The worker knows no server and no protocol",
        ),
    ],
)
def test_a_line_that_crosses_a_layer_is_found(house: Path, module: str, line: str, contract: str) -> None:
    with (house / "corral" / module).open("a") as text:
        text.write(f"\n{line}\n")
    said = lint(house)
    assert said.returncode == 1
    assert f"{contract} BROKEN" in said.stdout
