"""The contribution guide and the files around it say what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()


def test_the_pre_commit_hooks_are_the_commands_of_make_check() -> None:
    makefile = (ROOT / "Makefile").read_text()
    check = makefile.split("\ncheck:")[1].split("\n\n")[0]
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in check.splitlines()[1:]]
    hooks = re.findall(r"entry: (.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert hooks == commands


def test_decisions_are_numbered_without_holes() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(page.name.split("-")[0]) for page in pages] == list(range(1, len(pages) + 1))
    for number, page in enumerate(pages, 1):
        assert page.read_text().startswith(f"# {number}. "), page.name


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|tests|docs)/[\w./]*)`", GUIDE))))
def test_every_path_of_the_guide_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_guide_lists_every_folder_of_tests() -> None:
    folders = {entry.name for entry in (ROOT / "tests").iterdir() if (entry / "__init__.py").exists()}
    for name in folders - {"support"}:
        assert re.search(rf"`{name}[`/]|tests/{name}\b", GUIDE), name
