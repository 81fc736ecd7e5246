"""What the verifier finds in faulty patches of a corpus stays; see ``tests/goldens``."""

from __future__ import annotations

import pytest

from tests.goldens.corpus import corpus
from tests.goldens.goldens import VERIFIER, compare

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize("name", corpus())
def test_what_the_verifier_finds_stays(name: str) -> None:
    compare(name, VERIFIER)
