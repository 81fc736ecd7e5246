"""Random programs launch what they would without ikp, or its copy with records."""

from pathlib import Path

import pytest

from tests.backends.driver.model.building import HOOK, Built, build
from tests.backends.driver.model.mutants import MUTANTS, Mutant, survives

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize("how", ["", "threads"])
def test_what_is_launched_is_what_the_program_launches(built: Built, how: str) -> None:
    assert not built.run(0, 500 if how else 5000, how)


def test_a_child_that_is_forked_beside_launching_threads_does_not_hang(built: Built) -> None:
    assert not built.run(0, 1 << 20, "forks", timeout=300)


def test_before_cuda_12_contexts_have_no_numbers(tmp_path: Path) -> None:
    assert not build(tmp_path, old=True).run(0, 5000)


def test_races_are_the_librarys_own(tmp_path: Path) -> None:
    """Else a fault in its locks would be found where there is none."""
    assert not build(tmp_path, races=True).run(0, 1000, "threads")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_each_fault_can_be_put_in(mutant: Mutant) -> None:
    """An edit of the library takes none away from the list."""
    assert (HOOK / mutant.file).read_text().count(mutant.old) == 1


_FEW = [
    next(each for each in MUTANTS if words in each.name)
    for words in ("module that is unloaded stays", "library that is unloaded stays", "no lock")
]


@pytest.mark.parametrize("mutant", _FEW, ids=lambda each: each.name)
def test_a_fault_is_found(mutant: Mutant, tmp_path: Path) -> None:
    """Some of them: ``python -m tests.backends.driver.model --mutants`` looks for all."""
    assert not survives(mutant, tmp_path)


def test_a_module_of_a_context_that_ended_unseen_is_nothing_of_a_function_now(built: Built) -> None:
    """Programs up to 5,531,560, in which the driver gives the module's handle out again, unseen."""
    assert not built.run(5_531_000, 600)
