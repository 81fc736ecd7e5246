"""Totals in PTX: what they add up to, where they are kept, and that nothing is stored on the way.

The machine's clock goes on by 7 with every read, so a range that holds n reads takes 7 * (n + 1).
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.backends.triton.passes.entry import complete
from ikp.backends.triton.passes.schedule import schedule
from ikp.core import abi
from ikp.core.abi import Kind
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.trace import Trace
from ikp.targets import ptx_slot
from ikp.targets.ptx_totals import Counter, declarations, used
from tests.machines.ptx_kernel import Kernel
from tests.machines.ptx_machine import Machine

pytestmark = pytest.mark.any_pins

SEGMENT = 0x7F00_0000_0000
TICK = 7
Totals = dict[tuple[str, Kind], tuple[int, int]]


def run(text: str, warps: int = 2, room: int = 8) -> Trace:
    """Run a kernel on one block with room for some totals per warp."""
    machine = Machine()
    size = abi.segment_bytes(warps, room)
    segment = machine.memory.map(SEGMENT, size)
    machine.launch(text, [SEGMENT, size - abi.LAUNCH_HEADER_BYTES], block=(32 * warps, 1, 1))
    return decode([SegmentSource("k", segment)])


def totals(trace: Trace) -> list[Totals]:
    """Return the totals of each slot: how many, and their ticks."""
    found: list[Totals] = [{} for _ in range(len(trace.slots))]
    rows = (getattr(trace.totals, name).tolist() for name in trace.totals.__slots__)
    for slot, region, kind, count, ticks, _ in zip(*rows, strict=True):
        found[slot][trace.regions[region].name, Kind(kind)] = count, ticks
    return found


def looping(times: int = 5) -> Kernel:
    """Return a kernel that loops ``times``: a range in a range, each third iteration another."""
    kernel = Kernel(totals=True)
    kernel.init()
    kernel.add("mov.u32 %r40, 0;")
    kernel.lines.append("$L__LOOP:")
    outer = kernel.start()
    kernel.count_range(1, kernel.start())
    kernel.add("rem.u32 %r41, %r40, 3;", "setp.eq.u32 %p2, %r41, 0;", "selp.b32 %r42, 1, 0, %p2;")
    kernel.count_range(2, kernel.start(), where="%r42")
    kernel.count_range(3, outer)
    kernel.count_instant(4, where="%r42")
    kernel.count_instant(1)
    kernel.add("add.u32 %r40, %r40, 1;", f"setp.lt.u32 %p1, %r40, {times};", "@%p1 bra $L__LOOP;")
    return kernel


def expected(times: int) -> Totals:
    thirds = -(-times // 3)
    return {
        ("region 1", Kind.RANGE): (times, times * TICK),
        ("region 2", Kind.RANGE): (thirds, thirds * TICK),
        ("region 3", Kind.RANGE): (times, times * 5 * TICK),
        ("region 4", Kind.INSTANT): (thirds, 0),
        ("region 1", Kind.INSTANT): (times, 0),
    }


@given(st.integers(1, 20))
def test_every_warp_sums_up_what_it_did(times: int) -> None:
    text = complete(looping(times).text())
    for placed in (text, schedule(text)):
        trace = run(placed)
        assert totals(trace) == [expected(times)] * 2
        assert trace.slots.finished.all() and trace.dropped == 0
        assert trace.launches[0].mode == "totals"


def test_nothing_is_stored_before_the_end() -> None:
    text = schedule(complete(looping().text()))
    loop = text[text.index("$L__LOOP:") : text.index("@%p1 bra $L__LOOP")]
    assert "st." not in loop and "ld." not in loop
    assert len(re.findall(r"mov\.u32 %r\d+, %clock", loop)) == 6


def test_a_region_that_a_warp_never_met_takes_no_record() -> None:
    kernel = Kernel(totals=True)
    kernel.init()
    kernel.add("mov.u32 %r50, %tid.x;", "setp.ge.u32 %p1, %r50, 32;", "@%p1 bra $L__OTHER;")
    kernel.count_range(1, kernel.start())
    kernel.add("ret;")
    kernel.lines.append("$L__OTHER:")
    kernel.count_range(2, kernel.start())
    trace = run(complete(kernel.text()))
    assert totals(trace) == [
        {("region 1", Kind.RANGE): (1, TICK)},
        {("region 2", Kind.RANGE): (1, TICK)},
    ]
    assert trace.slots.attempted.tolist() == [1, 1]


def test_warps_that_never_pass_init_have_theirs() -> None:
    kernel = Kernel(totals=True)
    kernel.add("mov.u32 %r50, %tid.x;", "setp.ge.u32 %p1, %r50, 32;", "@%p1 bra $L__WORKER;")
    kernel.init()
    kernel.count_range(1, kernel.start())
    kernel.finish()
    kernel.add("ret;")
    kernel.lines.append("$L__WORKER:")
    kernel.count_range(2, kernel.start())
    trace = run(schedule(complete(kernel.text())), warps=3)
    worker: Totals = {("region 2", Kind.RANGE): (1, TICK)}
    assert totals(trace) == [{("region 1", Kind.RANGE): (1, TICK)}, worker, worker]


@pytest.mark.parametrize("room", [1, 2, 4])
def test_what_does_not_fit_is_dropped_and_counted(room: int) -> None:
    kernel = Kernel(totals=True)
    kernel.init()
    for region in range(10):
        kernel.count_range(region, kernel.start())
    trace = run(complete(kernel.text()), room=room)
    assert [len(found) for found in totals(trace)] == [room] * 2
    assert trace.slots.attempted.tolist() == [10] * 2
    assert trace.dropped == 2 * (10 - room)
    full = run(complete(kernel.text()), room=10)
    assert full.launches[0].segment_bytes == trace.launches[0].needed_bytes
    assert full.dropped == 0


def test_a_second_finish_writes_what_is_new() -> None:
    """As in CuTe, where nothing takes out the user's own: counters are declared by init."""
    kernel = Kernel(totals=True)
    counters = (Counter(Kind.RANGE, 1), Counter(Kind.INSTANT, 1))
    kernel.init()
    kernel.lines += declarations(counters)
    for _ in range(2):
        kernel.count_range(1, kernel.start())
        kernel.count_instant(1)
        kernel._emit(ptx_slot.finish(kernel.spec, counters))
    trace = run(kernel.text())
    assert (
        totals(trace)
        == [{("region 1", Kind.RANGE): (2, 2 * TICK), ("region 1", Kind.INSTANT): (2, 0)}] * 2
    )
    assert trace.slots.attempted.tolist() == [4] * 2


def test_counters_are_found_in_the_text() -> None:
    text = looping().text()
    assert used(text) == tuple(
        Counter(kind, region)
        for kind, region in [
            *((Kind.RANGE, region) for region in (1, 2, 3)),
            *((Kind.INSTANT, region) for region in (1, 4)),
        ]
    )
    assert used("ikp_cur ikp_lim ikp_counter_3 // ikp.store 4") == ()


def test_another_kernel_of_the_module_has_none_of_them() -> None:
    text = complete(looping().text())
    assert text.count(".reg .u64 ikp_sum_1;") == 1
    assert ".reg .u64 ikp_sum_4;" not in text  # instants have no ticks
