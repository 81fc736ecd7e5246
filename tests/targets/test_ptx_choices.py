"""The PTX of what a kernel or a host may choose: warps, blocks, conditions, indices, roles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import Kind, OverflowMode
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.regions import fallback_name
from ikp.core.segment import WORDS_AT, Selection
from ikp.core.trace import Trace
from tests.machines.ptx_kernel import Kernel
from tests.machines.ptx_machine import WARP, Dim, Machine

pytestmark = pytest.mark.any_pins

BASE = 0x7F12_3456_7000


def run(
    kernel: Kernel,
    nbytes: int,
    grid: Dim = (1, 1, 1),
    block: Dim = (WARP, 1, 1),
    selection: Selection | None = None,
) -> Trace:
    machine = Machine()
    data = machine.memory.map(BASE, nbytes)
    if selection is not None:
        words = selection.words().view(np.uint8)
        data[WORDS_AT : WORDS_AT + len(words)] = words
    machine.launch(kernel.text(), [BASE, nbytes - abi.LAUNCH_HEADER_BYTES], grid, block)
    return decode([SegmentSource("k", data, selected=selection is not None)])


def recorder(kernel: Kernel, count: int = 2) -> Kernel:
    """Record ``count`` ranges whose payload is the record's number."""
    kernel.init()
    for number in range(count):
        word = kernel.start()
        kernel.end(5, word, f"{number + 1}")
    kernel.finish()
    return kernel


SELECTIONS = st.builds(
    Selection,
    warps=st.one_of(st.integers(1, 2**32 - 1), st.sampled_from([1, 0x11, 0xFFFFFFFF])),
    first_block=st.integers(0, 14),
    block_step=st.integers(1, 20),
    block_count=st.one_of(st.integers(1, 8), st.just(2**32 - 1)),
)
GRIDS = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 2))


@given(SELECTIONS, GRIDS, st.sampled_from([1, 2, 4]), st.sampled_from(OverflowMode))
def test_the_chosen_warps_of_the_chosen_blocks_record_and_share_all_the_room(
    selection: Selection, grid: Dim, warps: int, mode: OverflowMode
) -> None:
    blocks = int(np.prod(grid))
    chosen_blocks = [
        b
        for rank, b in enumerate(range(selection.first_block, blocks, selection.block_step))
        if rank < selection.block_count
    ]
    chosen_warps = [w for w in range(warps) if selection.warps >> w & 1]
    wanted = [(b, w) for b in chosen_blocks for w in chosen_warps]
    nbytes = abi.segment_bytes(max(1, len(wanted)), 2, mode)
    kernel = recorder(Kernel(mode, select=True))
    trace = run(kernel, nbytes, grid, (WARP * warps, 1, 1), selection)

    found = zip(trace.slots.block.tolist(), trace.slots.warp.tolist(), strict=True)
    assert list(found) == wanted
    (launch,) = trace.launches
    assert (launch.attempted, launch.kept) == (2 * len(wanted), 2 * len(wanted))
    assert any("chosen to record" in note for note in launch.notes) is (not wanted)
    assert trace.events.payload.tolist() == [1, 2] * len(wanted)


def test_a_kernel_that_can_not_choose_records_all_and_it_is_told() -> None:
    kernel = recorder(Kernel())
    trace = run(kernel, abi.segment_bytes(4, 2), block=(128, 1, 1), selection=Selection(warps=1))
    assert trace.slots.warp.tolist() == [0, 1, 2, 3]
    assert "every warp recorded" in trace.launches[0].notes[0]


@pytest.mark.parametrize("mode", OverflowMode, ids=lambda mode: mode.name)
def test_a_condition_decides_what_is_stored_and_counted(mode: OverflowMode) -> None:
    kernel = Kernel(mode)
    kernel.init()
    for number in range(6):
        word = kernel.start()
        kernel.add(f"mov.u32 %r50, {number % 2};")
        kernel.end(5, word, f"{number + 1}", where="%r50")
        kernel.instant(6, f"{number + 1}", where="%r50")
    kernel.finish()
    trace = run(kernel, abi.segment_bytes(1, 8, mode))
    assert trace.events.payload.tolist() == [2, 2, 4, 4, 6, 6]
    assert (trace.launches[0].attempted, trace.launches[0].dropped) == (6, 0)


def test_given_indices_place_records_and_the_trace_is_in_the_order_of_time() -> None:
    kernel = Kernel()
    kernel.init()
    for index in (3, 0, 6):
        kernel.add(f"mov.u32 %r50, {index};")
        word = kernel.start()
        kernel.end(5, word, f"{index + 1}", index="%r50")
    kernel.instant(6, "9")  # after the largest
    kernel.finish()
    trace = run(kernel, abi.segment_bytes(1, 8))
    assert trace.events.payload.tolist() == [4, 1, 7, 9]
    assert trace.events.kind.tolist() == [Kind.RANGE] * 3 + [Kind.INSTANT]
    assert (np.diff(trace.events.end_ns) >= 0).all()
    (launch,) = trace.launches
    assert (launch.attempted, launch.kept) == (4, 4)
    assert not any("corrupt" in note for note in launch.notes)


@pytest.mark.parametrize("index", [8, 2**31, 2**32 - 1])
def test_an_index_outside_the_slot_is_dropped_and_told(index: int) -> None:
    kernel = Kernel()
    kernel.init()
    kernel.add("mov.u32 %r50, 1;", f"mov.u32 %r51, {index:#x};")
    kernel.instant(5, "1", index="%r50")
    kernel.instant(5, "2", index="%r51")
    kernel.finish()
    trace = run(kernel, abi.segment_bytes(1, 8))
    assert trace.events.payload.tolist() == [1]
    assert trace.launches[0].dropped > 0 and "dropped" in trace.launches[0].notes[0]


@pytest.mark.parametrize("finished", [True, False])
def test_records_at_given_indices_are_found_with_and_without_finish(finished: bool) -> None:
    kernel = Kernel()
    kernel.init()
    for index in (2, 5):
        kernel.add(f"mov.u32 %r50, {index};")
        kernel.instant(5, f"{index}", index="%r50")
    if finished:
        kernel.finish()
    trace = run(kernel, abi.segment_bytes(1, 8))
    assert trace.events.payload.tolist() == [2, 5]
    assert trace.launches[0].attempted == 2


def test_a_role_is_in_the_slot_of_its_warp() -> None:
    kernel = Kernel()
    kernel.init()
    kernel.role(abi.HASHED_REGION | 77)
    kernel.instant(5)
    kernel.finish()
    trace = run(kernel, abi.segment_bytes(1, 2))
    assert trace.roles == ("", fallback_name(abi.HASHED_REGION | 77))
    assert trace.slots.role.tolist() == [1]


@pytest.mark.parametrize("mode", OverflowMode)
@pytest.mark.parametrize("select", [False, True])
def test_no_bytes_for_slots_means_no_memory_at_all(select: bool, mode: OverflowMode) -> None:
    """Nothing is mapped: any access would be outside of every buffer."""
    Machine().launch(recorder(Kernel(mode, select=select)).text(), [0, 0], (2, 1, 1), (64, 1, 1))
