"""Random programs launch what they would without ikp, or its copy with records."""

from pathlib import Path

import pytest

from tests.backends.driver.model.building import Built, build
from tests.backends.driver.model.mutants import MUTANTS, survives

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize("how", ["", "threads"])
def test_what_is_launched_is_what_the_program_launches(built: Built, how: str) -> None:
    assert not built.run(0, 500 if how else 5000, how)


def test_a_child_that_is_forked_beside_launching_threads_does_not_hang(built: Built) -> None:
    assert not built.run(0, 1 << 20, "forks", timeout=300)


def test_before_cuda_12_contexts_have_no_numbers(tmp_path: Path) -> None:
    assert not build(tmp_path, old=True).run(0, 5000)


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if "stays known" in each.name][:2])
def test_a_fault_is_found(mutant: object, tmp_path: Path) -> None:
    """One of them: ``python -m tests.backends.driver.model --mutants`` looks for all."""
    assert not survives(mutant, tmp_path)  # type: ignore[arg-type]
