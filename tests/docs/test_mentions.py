"""What the pages name is there: commands with their options, also within a sentence, and places on pages."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import COMMANDS, HOME
from tests.faults.prove.__main__ import prove_parser

PAGES = [*HOME.glob("*.md"), *(HOME / "docs").rglob("*.md"), *(HOME / "examples").rglob("*.md")]
GROUPS = {words[0] for words in COMMANDS if len(words) > 1}
ROOT_OPTIONS = {"--url", "--protocol", "--namespace", "--folder", "--json", "--version", "--help"}
ROOT_OPTIONS |= {"--install-completion", "--show-completion"}
PASSED_ON = {"prove": set(prove_parser()._option_string_actions)}
"""Options of what a command runs from the source tree."""
_CODE = re.compile(r"```.*?```|`([^`\n]+)`", re.DOTALL)
_CORRAL = re.compile(r"(?:^|[$|;&] ?)corral( [^`$|;&#\n]*)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def mentions(text: str) -> list[str]:
    """What follows `corral` wherever it stands as a command."""
    code = [match.group(1) or match.group(0) for match in _CODE.finditer(text)]
    return [found.strip() for piece in code for found in _CORRAL.findall(piece)]


def shown_path(page: Path) -> str:
    return str(page.relative_to(HOME))


@pytest.mark.parametrize("page", PAGES, ids=shown_path)
def test_every_command_and_option_that_a_page_names_is_there(page: Path) -> None:
    assert [wrong for mention in mentions(page.read_text()) for wrong in unknown(mention)] == []


def unknown(mention: str) -> list[str]:
    """What of `corral …` is no command and no option."""
    words = mention.split()
    plain = [word for word in words if re.fullmatch(r"[a-z]+", word)]
    given = [word.partition("=")[0].rstrip(",.") for word in words if word.startswith("--")]
    if not plain or (plain[0] in GROUPS and len(plain) < 2):  # all of them are meant, or a group
        return [word for word in given if word not in ROOT_OPTIONS]
    command = COMMANDS.get(tuple(plain[:2])) or COMMANDS.get(tuple(plain[:1]))
    if command is None:
        return [mention]
    known = {option for parameter in command.params for option in parameter.opts} | ROOT_OPTIONS
    known |= PASSED_ON.get(plain[0], set())
    return [word for word in given if word not in known]


def anchor(heading: str) -> str:
    """The place that a heading makes on its page."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=shown_path)
def test_every_link_to_a_place_on_a_page_finds_it(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        path, has_place, place = link.partition("#")
        if not has_place or link.startswith(("http://", "https://")):
            continue
        target = page if not path else page.parent / path
        places = {anchor(heading) for heading in _HEADING.findall(target.read_text())}
        assert place in places, f"{shown_path(page)} links to {link}"


def test_mentions_are_found_where_they_are_wrong() -> None:
    assert mentions("see `corral queue ls`, then:\n```console\n$ corral job show mail 1\n```\n") == [
        "queue ls",
        "job show mail 1",
    ]
    assert unknown("queue ls --jsn") == ["--jsn"]
    assert (unknown("queue lst"), unknown("frob")) == (["queue lst"], ["frob"])
    assert unknown("lake") == unknown("queue add mail send --id y") == []
    assert sum(len(mentions(page.read_text())) for page in PAGES) > 100
    assert anchor("What can be lost") == "what-can-be-lost"


def test_every_test_that_the_comparison_names_exists() -> None:
    rows = [
        line for line in (HOME / "docs" / "comparison.md").read_text().splitlines() if line.startswith("| ")
    ]
    named = [row.rpartition("`")[0].rpartition("`")[2] for row in rows[1:]]
    assert len(named) >= 12
    assert [path for path in named if not (HOME / path).exists()] == []
