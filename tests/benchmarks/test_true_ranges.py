"""Clock reads go right around the texts that are named, in program order."""

from __future__ import annotations

import pytest

from benchmarks import true_ranges

KERNEL = (
    "__global__ void k(float* out, int N, int C) {\n float maxval;\n a();\n b();\n a();\n b();\n}"
)


def test_each_pair_is_around_its_own_text() -> None:
    edits = [*true_ranges.around("a();", "a();", 0), *true_ranges.around("b();", "b();", 1)]
    text = true_ranges.edited(KERNEL, "float maxval", edits)
    assert "int C, unsigned* hand) {" in text
    first = "unsigned ikp_0 = clock(); a(); if (ikp_lane == 0) ikp_cells[0] = clock() - ikp_0;"
    assert text.index(first) < text.index("unsigned ikp_1 = clock(); b(); if (ikp_lane == 0)")
    assert text.count("clock()") == 4 and text.count("a();") == text.count("b();") == 2


def test_a_barriers_wait_is_read_by_the_third_read() -> None:
    (_, (_, after)) = true_ranges.around("a();", "a();", 1, adds=True, barrier=True)
    assert after == "a(); clock(); clock(); if (ikp_lane == 0) ikp_cells[1] += clock() - ikp_1;"


def test_ranges_and_cells_are_paired_in_program_order() -> None:
    ranges = [
        {"name": name, "of_warp": took}
        for name, took in (("loop @k:3", 100), ("barrier @k:4", 10), ("barrier @k:9", 30))
    ]
    hand = {"kernels": {"k": 50.0, "fill": 2.0}, "cells": [80.0, 10.0, 20.0]}
    found = true_ranges.rows("llm_c_matmul", {"span": 55.0, "ranges": ranges}, hand)
    assert [row.split(" | ")[-1] for row in found] == [
        *("1.100 |", "1.250 |", "1.000 |", "1.500 |")
    ]
    found = true_ranges.rows("llm_c_matmul", {"span": 55.0, "ranges": ranges[1:2]}, hand)
    assert sum("no range" in row for row in found) == 2
    with pytest.raises(ValueError, match="substring not found"):
        true_ranges.edited(KERNEL, "float maxval", true_ranges.around("c();", "c();", 0))
