"""Python's collector is as it was, after what runs without it."""

from __future__ import annotations

import gc

import pytest

from ikp.uncollected import uncollected

pytestmark = pytest.mark.any_pins


@uncollected()
def fails() -> None:
    """Fail with KeyError, and with AssertionError where the collector is on."""
    assert not gc.isenabled()
    raise KeyError


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_paused_and_then_as_it_was(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(KeyError):
            fails()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
