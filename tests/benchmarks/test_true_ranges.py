"""Clock reads go right around the texts that are named; ranges stand beside their lines."""

from __future__ import annotations

import pytest

from benchmarks import true_ranges
from benchmarks.calls import clocks

KERNEL = "k() {\n a();\n __syncthreads();\n a();\n}"


def test_each_pair_is_around_its_own_text() -> None:
    edits = [*clocks.timed(0, "a();", "a();"), *clocks.timed(1, "a();", "a();")]
    text = clocks.replaced(KERNEL.replace("a();", "a(); a();"), edits)
    first = "ikp_from = clock(); a(); a(); ikp_0 += clock() - ikp_from;"
    assert text.index(first) < text.index(first.replace("ikp_0", "ikp_1"))
    assert text.count("clock()") == 4 and text.count("a();") == 4
    with pytest.raises(ValueError, match="substring not found"):
        clocks.replaced(KERNEL, clocks.timed(0, "b();", "b();"))


def test_a_clock_behind_a_barrier_waits_for_the_barrier_and_for_no_load() -> None:
    text = clocks.replaced(KERNEL, [clocks.barrier(1)])
    between = text[text.index("__syncthreads();") : text.index("ikp_1 += clock()")]
    assert "st.shared.u32" in between and "volatile float" not in between


def test_ranges_stand_beside_the_cells_of_their_lines() -> None:
    kernel, *_ = (each for each in clocks.KERNELS if "barrier" in dict(each.places))
    lines = [line for _, line in kernel.places]
    names = [f"loop @k.cu:{lines[0]}", *(f"barrier @k.cu:{line}" for line in lines[1:])]
    hand = {"us": 50.0, "edited us": 51.0, "cells": [80.0, 10.0, 20.0]}
    told = {
        "us": 55.0,
        "dropped": 0,
        "told": "",
        "ranges": dict(zip(names, (100.0, 10.0, 30.0), strict=True)),
    }
    of_all = {each.label: hand for each in clocks.KERNELS}
    counted = [{"name": name, "copies": [{"counts": {"load": 2}}]} for name in names]
    inspected = {"kernels": [{"name": kernel.label, "ranges": counted}]}

    def rows(**changed: object) -> list[str]:
        ways = {"default": {each.label: told | changed for each in clocks.KERNELS}}
        ranges, launches = true_ranges.rows(of_all, ways, inspected)
        assert "1.100" in launches[0]
        return [row for row in ranges if row.startswith(f"| {kernel.library}")]

    assert [row.split(" | ")[-1] for row in rows()] == [
        *("100 (1.250) |", "10 (1.000) |", "30 (1.500) |")
    ]
    assert all("| 2 load |" in row for row in rows())
    assert all("not recorded" in row for row in rows(ranges={}))
    assert all("records dropped" in row for row in rows(dropped=1))
