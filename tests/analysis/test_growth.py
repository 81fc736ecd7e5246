"""What is made of a trace takes time that grows with it, not with the square of its names."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import ikp
from ikp.analysis.explain.prepared import prepare
from ikp.trace import Trace
from tests.analysis.example import launch, trace
from tests.growth import calls, peak_bytes

pytestmark = pytest.mark.any_pins


def of_regions(count: int, word: str = "r") -> Trace:
    """Return two launches, each with so many regions."""
    return trace(
        [(slot, at, 10 * at, 10 * at + 5) for slot in range(2) for at in range(count)],
        launches=(launch(), launch()),
        slots=[(0, 0), (1, 0)],
        regions=tuple(f"{word} {at}" for at in range(count)),
        residence=10 * count,
    )


def gemm(warps: int, steps: int = 500) -> Trace:
    """Return a launch whose warps load, then multiply, so many times each."""
    rows = np.arange(warps * steps * 2)
    slot, at = np.divmod(rows, 2 * steps)
    return trace(
        np.column_stack((slot, at % 2, 10 * at, 10 * at + 8)).tolist(),
        launches=(launch(grid=(warps, 1, 1), attempted=len(rows), kept=len(rows)),),
        slots=[(0, warp) for warp in range(warps)],
        regions=("load", "dot"),
        residence=20 * steps,
    )


def of_labels(count: int) -> Trace:
    """Return so many kernels, each with a launch and a region of its own."""
    return trace(
        [(at, at, 10, 15) for at in range(count)],
        launches=tuple(launch(f"k{at}") for at in range(count)),
        slots=[(at, 0) for at in range(count)],
        regions=tuple(f"r{at}" for at in range(count)),
    )


def of_launches(count: int) -> Trace:
    """Return so many launches of one kernel."""
    return trace(
        [(at, 0, 10, 15) for at in range(count)],
        launches=(launch(),) * count,
        slots=[(at, 0) for at in range(count)],
        regions=("dot",),
    )


@pytest.mark.parametrize("make", [of_regions, of_labels])
def test_twice_the_names_take_twice_the_calls(make):
    small, large = (calls(partial(ikp.diff, one, one)) for one in (make(100), make(200)))
    assert large < 2.5 * small


def test_a_label_takes_calls_of_a_few_hundred():
    ikp.diff(of_labels(1), of_labels(1))  # what is imported, and computed once
    small, large = (calls(partial(ikp.diff, one, one)) for one in (of_labels(100), of_labels(200)))
    assert large - small < 600 * 100


@pytest.mark.parametrize("word", ["r", "barrier", "wait full", "dot", "iteration"])
def test_an_explanation_takes_calls_and_memory_as_names_grow(word):
    traces = [of_regions(count, word) for count in (200, 400)]
    explain = [partial(Trace.explain, one) for one in traces]
    small, large = map(calls, explain)
    assert large < 2.5 * small
    assert peak_bytes(explain[1]) < 400 * 8000


def test_an_explanation_takes_few_bytes_a_range():
    """A trace has 40 of its own for each. Columns of all times would be 16, orders by them 24."""
    one, two = (gemm(warps) for warps in (200, 400))  # more than are read at once
    bytes_of = [peak_bytes(partial(Trace.explain, each)) for each in (one, two)]
    assert bytes_of[1] - bytes_of[0] < 60 * (len(two.events) - len(one.events))


def test_the_launches_of_a_kernel_take_memory_once_each():
    one = of_launches(3000)
    assert peak_bytes(partial(ikp.diff, one, one)) < 3000 * 3000


def test_figures_are_those_of_each_kernel_alone():
    found = ikp.diff(of_labels(3), of_labels(3))
    assert [[row.region for row in one.rows] for one in found.kernels] == [
        [f"r{at}", "in no range"] for at in range(3)
    ]
    assert [one.rows[0].count for one in found.kernels] == [(1, 1)] * 3


def test_the_ranges_of_a_warp_take_no_memory_of_the_others():
    launch = prepare(of_regions(20_000), 0)
    column = launch.slot.nbytes
    assert peak_bytes(lambda: launch.of_slot(1)) < column / 10
    assert launch.of_slot(0).tolist() == list(range(20_000))
