"""The mutants are up to date: each can be applied, names tests that exist, and stands on the page."""

from collections import Counter

import pytest

from tests.faults.mutants import PAGE, ROOT, Mutant, read_mutants

MUTANTS = read_mutants()
LEAST = 60


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutants_old_text_is_once_in_its_file(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    assert mutant.applied(source) != source


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_that_catch_a_mutant_exist(mutant: Mutant) -> None:
    for test in mutant.tests:
        file, _, name = test.partition("::")
        name = name.partition("[")[0]
        assert f"def {name}(" in (ROOT / file).read_text(), test


def test_there_are_enough_mutants_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTANTS) >= LEAST
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []
    assert {mutant.area for mutant in MUTANTS} == {"bullmq", "streams", "bridgemq", "worker"}


def test_every_mutant_is_on_the_page() -> None:
    page = PAGE.read_text()
    assert [mutant.name for mutant in MUTANTS if f"| {mutant.what} |" not in page] == []
