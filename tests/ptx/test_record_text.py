"""Records in PTX, run thread by thread: what they write is what the decoder reads."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import Language, Option
from ikp.core.regions import region_id
from ikp.core.segment import ALL, Selection
from ikp.probes.points.probe_points import Level
from ikp.ptx.record_text import BlockShape
from tests.machines.ptx_machine import WARP, Dim
from tests.ptx.small import TURNS, kernel, marked, run

pytestmark = pytest.mark.any_pins

GRIDS = st.sampled_from([(1, 1, 1), (3, 1, 1), (1, 2, 1), (1, 2, 2)])
BLOCKS = st.sampled_from([(32, 1, 1), (64, 1, 1), (8, 4, 2), (8, 3, 2), (20, 1, 1)])


@given(GRIDS, BLOCKS, st.integers(1, 3), st.integers(1, 9), st.booleans())
def test_each_warp_records_its_turns(
    grid: Dim, block: Dim, turns: int, records: int, known: bool
) -> None:
    text = kernel(TURNS, block if known else None)
    ran = run(marked(text), turns, grid, block, records)
    (launch,) = ran.trace.launches
    warps = prod(grid) * -(-prod(block) // WARP)
    made = 2 * turns + 1  # a load and an iteration for each turn, and the loop
    assert (launch.kept, launch.dropped) == (
        warps * (1 + min(made, records)),  # and the kernel, which has no record
        warps * max(0, made - records),
    )
    ids = [region_id(name) for name in ("load", "iteration")] * turns + [region_id("loop")]
    at = abi.LAUNCH_HEADER_BYTES + warps * abi.DENSE_HEADER_BYTES
    tags = ran.data[at:].view(abi.RECORD)["tag"] & abi.REGION_MASK
    assert Counter(tags[tags > 0].tolist()) == Counter(ids[:records] * warps)


def test_the_launch_header_says_what_the_launch_is() -> None:
    ran = run(marked(kernel(TURNS, (128, 1, 1))), 1, (3, 2, 1), (128, 1, 1), 4)
    header = ran.header
    assert (header["grid"].tolist(), header["block"].tolist()) == ([3, 2, 1], [128, 1, 1])
    assert header["slot_bytes"] == abi.DENSE_HEADER_BYTES + 4 * abi.RECORD_BYTES
    assert header["options"] == Option.DENSE and header["language"] == Language.TRITON
    assert header["whole"] == region_id("k") and header["launches"] == 1
    assert header["together"] == 4


def test_ranges_nest_and_none_is_longer_than_the_kernel() -> None:
    ran = run(marked(kernel(TURNS)), 3, (1, 1, 1), (WARP, 1, 1), 8)
    at = abi.LAUNCH_HEADER_BYTES + abi.DENSE_HEADER_BYTES
    records = ran.data[at:].view(abi.RECORD)[:7]
    header = ran.data[abi.LAUNCH_HEADER_BYTES : at].view(abi.DENSE_HEADER)[0]
    loads, turns, loop = records[0:6:2], records[1:6:2], records[6]
    assert np.all(turns["start"] <= loads["start"]) and np.all(loads["end"] < turns["end"])
    assert loop["start"] < turns["start"].min() and turns["end"].max() < loop["end"]
    assert header["init_clock"] < loop["start"] and loop["end"] < header["finish_clock"]
    assert header["attempted"] == 7


@pytest.mark.parametrize("level", Level)
def test_each_detail_adds_to_the_one_before(level: Level) -> None:
    ran = run(marked(kernel(TURNS), level), 2, (1, 1, 1), (WARP, 1, 1), 8)
    assert ran.trace.launches[0].kept == {Level.KERNEL: 1, Level.LOOPS: 4, Level.WAITS: 4}.get(
        level, 6
    )


def test_a_cell_of_zeros_records_nothing() -> None:
    ran = run(marked(kernel(TURNS)), 2, (2, 1, 1), (WARP, 1, 1), 8, slots=0)
    assert not ran.data.any() and not ran.trace.launches


def test_no_warp_writes_where_the_cell_has_no_slot_for_it() -> None:
    """As where a launch has more blocks than the host was told."""
    ran = run(marked(kernel(TURNS)), 2, (4, 1, 1), (WARP, 1, 1), 8, slots=1)
    assert not ran.data[abi.LAUNCH_HEADER_BYTES + abi.DENSE_HEADER_BYTES + 8 * 16 :].any()


@given(
    GRIDS,
    BLOCKS,
    st.builds(
        Selection,
        warps=st.integers(1, 3),
        first_block=st.integers(0, 4),
        block_step=st.integers(1, 3),
        block_count=st.integers(1, 3) | st.just(ALL),
    ),
    st.booleans(),
)
def test_those_that_are_chosen_record_and_no_others(
    grid: Dim, block: Dim, chosen: Selection, known: bool
) -> None:
    text = marked(kernel(TURNS, block if known else None), select=True)
    ran = run(text, 2, grid, block, 8, chosen=chosen)
    warps = chosen.chosen_warps(-(-prod(block) // WARP)).tolist()
    blocks = [n for n in range(prod(grid)) if chosen.rank(n) is not None]
    slots, (launch,) = ran.trace.slots, ran.trace.launches
    both = [(n, warp) for n in blocks for warp in warps]
    assert list(zip(slots.block.tolist(), slots.warp.tolist(), strict=True)) == both
    assert slots.finished.all() and (launch.kept, launch.dropped) == (6 * len(both), 0)


def test_a_kernel_that_could_choose_is_turned_off_by_a_cell_of_zeros() -> None:
    text = marked(kernel(TURNS), select=True)
    ran = run(text, 2, (2, 1, 1), (WARP, 1, 1), 0, slots=0, chosen=Selection(1))
    assert not ran.data.any()


LEAVING = """\
mov.u32 %r4, %tid.x;
setp.ge.u32 %p2, %r4, 5;
@%p2 exit;
"""


def test_threads_that_leave_early_leave_the_others_recording() -> None:
    ran = run(marked(kernel(LEAVING + TURNS)), 2, (1, 1, 1), (WARP, 1, 1), 8)
    assert ran.trace.launches[0].kept == 6
    ran = run(marked(kernel(LEAVING.replace(".ge.", ".lt.") + TURNS)), 2, (1, 1, 1), (32, 1, 1), 8)
    assert ran.trace.launches[0].kept == 1, "the first thread has left, with the warp's records"


def test_a_kernel_without_a_return_leaves_at_its_end() -> None:
    text = kernel(TURNS).replace("ret;\n", "")
    ran = run(marked(text), 1, (1, 1, 1), (WARP, 1, 1), 8)
    assert ran.trace.launches[0].kept == 3, "its turn and what is in it; the loop ends with it"
    assert ran.trace.slots.finished.all()


@pytest.mark.parametrize(
    ("threads", "together"),
    [(None, 1), ((32, 1, 1), 1), ((96, 1, 1), 1), ((192, 1, 1), 2), ((1024, 1, 1), 8)],
)
def test_rows_divide_a_block(threads: Dim | None, together: int) -> None:
    assert BlockShape(threads).together == together
