"""What is recorded of a corpus of kernels, and the code for that, stays; see ``tests/goldens``."""

from __future__ import annotations

import pytest

from tests.goldens.goldens import PROBES, compare, compare_functions, subjects

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize("name", subjects())
def test_what_is_recorded_of_a_kernel_and_how_stays(name: str) -> None:
    compare(name, PROBES)


def test_what_single_functions_return_stays() -> None:
    compare_functions()
