from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ikp
from ikp.core.trace import Trace, faults
from ikp.errors import UsageError
from tests.edit.test_select import example, names
from tests.strategies import traces

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize(
    ("window", "launches", "wanted"),
    [
        ((9.5, None), ["norm"], [("norm", "load", 0)]),
        ((None, 4), ["gemm"], [("gemm", "load", 0), ("gemm", "load_a", 1)]),
        ((9, 9), ["gemm"], [("gemm", "load", 0), ("gemm", "done", 0)]),
        ((25, 40), ["norm"], []),
    ],
)
def test_only_what_ran_in_the_window_is_left(
    window: tuple[float | None, float | None],
    launches: list[str],
    wanted: list[tuple[str, str, int]],
) -> None:
    left = ikp.edit.cut(example(), *window)
    assert [one.label for one in left.launches] == launches
    assert names(left) == wanted


@given(trace=traces(), ends=st.tuples(*[st.none() | st.integers(0, 1 << 40)] * 2))
def test_whatever_is_cut_is_a_sound_part(trace: Trace, ends: tuple[int | None, int | None]) -> None:
    begin, end = sorted(ends) if None not in ends else ends  # type: ignore[type-var]
    try:
        left = ikp.edit.cut(trace, begin, end)
    except UsageError:
        assume(False)
    assert faults(left) == []
    assert set(left.slots.launch.tolist()) == set(range(len(left.launches)))
    kept = ikp.edit.select(trace, window_ns=(begin, end))
    assert sorted(left.events.start_ns.tolist()) == sorted(kept.events.start_ns.tolist())


def test_a_launch_is_chosen_by_its_number() -> None:
    assert [one.label for one in ikp.edit.select(example(), launch=1).launches] == ["norm"]
    assert len(ikp.edit.select(example(), launch=range(2)).launches) == 2
    with pytest.raises(UsageError, match="no launch has number 2; the trace has 0 to 1"):
        ikp.edit.select(example(), launch=2)
    with pytest.raises(UsageError, match="no launch matches '1'"):
        ikp.edit.select(example(), launch="1")
