"""The order of steps by which their operands are ready in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.sass.assembly.assembler import NEVER, Step, reordered

pytestmark = pytest.mark.any_pins


def step(name: int, writes: int | None, *reads: int, time: int = 6) -> Step:
    """Return a step that some registers are read and written by, told from others by ``name``."""
    registers = frozenset(("R", each) for each in reads)
    return Step(name, 0, registers, frozenset() if writes is None else {("R", writes)}, time)


def order(*steps: Step) -> list[int]:
    return [each.low for each in reordered(steps)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, 1, 2, 3, 4]),
            st.sets(st.integers(1, 4), max_size=2),
            st.sampled_from([NEVER, 6, 13]),
            st.sampled_from([0, 0, 0, 1]),
            st.booleans(),
        ),
        max_size=9,
    )
)
def test_each_step_has_the_operands_that_it_had(
    rows: list[tuple[int | None, set[int], int, int, bool]],
) -> None:
    steps = [
        step(n, writes, *reads, time=time)._replace(waits=waits, keeps=keeps and writes is None)
        for n, (writes, reads, time, waits, keeps) in enumerate(rows)
    ]
    made = reordered(steps)
    assert sorted(each.low for each in made) == [*range(len(steps))]

    def seen(steps: list[Step]) -> dict[int, tuple[int | None, ...]]:
        last: dict[tuple[str, int], int] = {}
        found = {}
        for each in steps:
            found[each.low] = tuple(last.get(one) for one in sorted(each.reads))
            last |= dict.fromkeys(each.writes, each.low)
        return {**found, -1: tuple(last.get(("R", n)) for n in range(1, 5))}

    assert seen(made) == seen(steps), "who made each operand"
    assert [each.low for each in made if each.keeps] == [n for n, s in enumerate(steps) if s.keeps]
    for at, each in enumerate(steps):
        if each.waits:
            assert made[at] == each
            assert {one.low for one in made[:at]} == {*range(at)}, "none goes past a wait"


def test_what_takes_longest_begins_first() -> None:
    assert order(step(0, 1), step(1, 2), step(2, 3, time=13)) == [2, 0, 1]
    assert order(step(0, 1), step(1, 2, time=13), step(2, 3, time=NEVER)) == [2, 1, 0]
    chain = (step(0, 1), step(1, 2), step(2, 3, 2), step(3, 4, 3))
    assert order(*chain)[0] == 1, "a chain is as long as all its steps"
    assert order(step(0, 1, time=6), step(1, 2, time=6)) == [0, 1]


def test_a_step_whose_operands_are_ready_comes_before_one_that_would_be_held_back() -> None:
    assert order(step(0, 1, time=13), step(1, 2, 1, time=13), step(2, 3)) == [0, 2, 1]
    held = (step(0, 1), step(1, 2, 1), *(step(n, n + 4) for n in range(2, 6)))
    assert order(*held).index(1) == 5
