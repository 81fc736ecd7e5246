"""What is said of the code of a corpus of kernels stays as it is; see ``tests/goldens``."""

from __future__ import annotations

import pytest

from tests.goldens.goldens import CODE, compare, compare_forms, subjects

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize("name", subjects())
def test_what_is_said_of_a_kernels_code_stays(name: str) -> None:
    compare(name, CODE)


def test_what_is_said_of_each_form_of_instruction_stays() -> None:
    compare_forms()
