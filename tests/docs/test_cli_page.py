"""The page about the command line names every command and every option there is."""

import re

import pytest

from tests.docs.pages import COMMANDS, HOME

PAGE = (HOME / "docs" / "reference" / "cli.md").read_text()
COMMON = {"--url", "--protocol", "--namespace", "--folder", "--json", "--yes", "--help"}
ELSEWHERE = ("lake",)
"""Groups with a page of their own."""


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] not in ELSEWHERE], ids=" ".join)
def test_a_command_is_on_the_page_with_its_options(words: tuple[str, ...]) -> None:
    assert f"corral {' '.join(words)}" in PAGE
    for parameter in COMMANDS[words].params:
        if parameter.param_type_name == "option":
            longest = max(parameter.opts, key=len)
            assert longest in COMMON or longest in PAGE, longest


def test_groups_with_a_page_of_their_own_are_named() -> None:
    assert all(f"corral {group}" in PAGE for group in ELSEWHERE)


def test_every_check_of_the_doctor_is_on_the_page() -> None:
    source = "".join(
        path.read_text()
        for folder in ("cli/doctor", "doctor")
        for path in (HOME / "src/corral" / folder).glob("*.py")
    )
    checks = set(re.findall(r'(?:fine|note|wrong)\(\s*"(\w+)"', source))
    assert len(checks) > 10
    assert {check for check in checks if f"`{check}`" not in PAGE} <= {"leaks"}
