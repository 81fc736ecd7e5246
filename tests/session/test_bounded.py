"""The end of a session with a bound on what it decodes: launches beyond it are reported."""

from __future__ import annotations

from collections import Counter

import pytest

import ikp
from ikp.core.trace import Trace
from ikp.errors import IkpWarning
from tests.host import Host
from tests.session.test_harvest import launch

pytestmark = pytest.mark.any_pins
WARPS = 2  # of each launch here


def recorded(host: Host, most: int | None) -> Trace:
    """Record launches of three labels in turn, four of each; return the trace."""
    prof = ikp.profile()
    prof.most_warps = most
    with prof:
        for _ in range(4):
            for label in "abc":
                launch(host, prof, label)
    return prof.trace


def test_launches_beyond_the_bound_are_left_out_but_for_each_kernels_first(host: Host) -> None:
    text = "a: the trace leaves out 2 recorded launches: with them it would have more than 10 warps"
    with pytest.warns(IkpWarning) as said:
        trace = recorded(host, 5 * WARPS)
    assert sum(text in str(each.message) for each in said) == 1
    assert Counter(each.label for each in trace.launches) == {"a": 2, "b": 2, "c": 1}
    with pytest.warns(IkpWarning, match="leaves out 3 recorded launches"):
        assert len(recorded(host, 0).launches) == 3


@pytest.mark.parametrize("most", [None, 12 * WARPS])
def test_what_fits_is_decoded_and_nothing_said(host: Host, most: int | None) -> None:
    assert len(recorded(host, most).launches) == 12
