"""Where init and finish end up in a compiled kernel, and what the kernel then writes."""

from __future__ import annotations

import itertools

import pytest

from ikp.backends.triton.passes.entry import complete
from ikp.backends.triton.passes.schedule import schedule
from ikp.core import abi
from ikp.core.abi import OverflowMode
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.trace import Trace
from ikp.errors import KernelError
from tests.machines.ptx_kernel import Kernel
from tests.machines.ptx_machine import Machine
from tests.machines.ptx_program import FaultError

pytestmark = pytest.mark.any_pins

SEGMENT = 0x7F00_0000_0000
SLOTS = 4


def run(text: str, warps: int = SLOTS, mode: OverflowMode = OverflowMode.STOP) -> Trace:
    """Run a kernel on one block with room for eight records per warp."""
    machine = Machine()
    size = abi.segment_bytes(warps, 8, mode)
    segment = machine.memory.map(SEGMENT, size)
    machine.launch(text, [SEGMENT, size - abi.LAUNCH_HEADER_BYTES], block=(32 * warps, 1, 1))
    return decode([SegmentSource("k", segment)])


def payloads(trace: Trace) -> list[list[int]]:
    """Return the payloads that each slot recorded."""
    events = trace.events
    return [events.payload[events.slot == slot].tolist() for slot in range(len(trace.slots))]


def worker_kernel(mode: OverflowMode = OverflowMode.STOP) -> Kernel:
    """Return a kernel whose warps but the first leave before init, as worker warps do."""
    kernel = Kernel(mode)
    kernel.add("mov.u32 %r50, %tid.x;", "setp.ge.u32 %p1, %r50, 32;", "@%p1 bra $L__WORKER;")
    kernel.init()
    kernel.end(1, kernel.start(), "11")
    kernel.finish()
    kernel.add("ret;")
    kernel.lines.append("$L__WORKER:")
    kernel.end(2, kernel.start(), "22")
    return kernel


@pytest.mark.parametrize("mode", OverflowMode, ids=lambda mode: mode.name)
def test_warps_that_never_pass_init_record_and_finish(mode: OverflowMode) -> None:
    text = worker_kernel(mode).text()
    with pytest.raises(FaultError, match="is read before it is written"):
        run(text, mode=mode)
    for placed in (complete(text), schedule(complete(text))):
        trace = run(placed, mode=mode)
        assert payloads(trace) == [[11], [22], [22], [22]]
        assert trace.slots.finished.all()
        assert trace.launches[0].notes == ()


def test_a_text_without_the_mark_comes_back_as_it_is() -> None:
    kernel = Kernel()
    kernel.add("@%p1 ret;", "mov.b32 %r1, 5;")
    assert complete(kernel.text()) == kernel.text()


def exits(*guards: str) -> Kernel:
    """Return a kernel that records, and leaves at one of several exits by the warp's number."""
    kernel = Kernel()
    kernel.init()
    kernel.add("mov.u32 %r50, %tid.x;", "shr.u32 %r50, %r50, 5;")
    for number, guard in enumerate(guards):
        kernel.instant(1, str(number + 1))
        compare = "eq" if not guard.startswith("@!") else "ne"
        kernel.add(f"setp.{compare}.u32 %p{number}, %r50, {number};")
        kernel.add(f"{guard.format(number)} ret;")
    kernel.instant(1, "99")
    return kernel


@pytest.mark.parametrize("guards", [*itertools.product(["@%p{}", "@!%p{}"], repeat=2)])
def test_every_exit_finishes(guards: tuple[str, str]) -> None:
    text = exits(*guards).text()
    assert not run(text).slots.finished.any()
    trace = run(complete(text))
    assert payloads(trace) == [[1], [1, 2], [1, 2, 99], [1, 2, 99]]
    assert trace.slots.finished.all()
    assert trace.slots.attempted.tolist() == [1, 2, 3, 3]


def test_a_finish_of_the_users_is_taken_out() -> None:
    kernel = Kernel()
    kernel.init()
    kernel.finish()
    kernel.instant(1, "5")
    text = complete(kernel.text())
    assert text.count("%globaltimer") == 2  # init's and the exit's
    assert payloads(run(text)) == [[5]] * SLOTS
    assert run(text).slots.attempted.tolist() == [1] * SLOTS


def test_only_the_kernel_with_the_mark_is_changed() -> None:
    kernel = Kernel()
    kernel.init()
    bare = Kernel()
    bare.add("@%p1 ret;")
    function = ".func f()\n{\n\tret;\n}\n"
    others = function + bare.text().partition(".address_size 64\n")[2].replace(" k(", " other(")
    text = complete(kernel.text() + others)
    assert text.endswith(others)
    assert text.count("%globaltimer") == 2
    before = others + kernel.text().partition(".address_size 64\n")[2]
    assert complete(before).startswith(others)


def test_assembly_of_the_users_may_come_first() -> None:
    kernel = Kernel()
    user = ["\t// begin inline asm", "\t{", ".reg .u32 q;", "mov.u32 q, %tid.x;", "}"]
    kernel.lines += [*user, "\t// end inline asm"]
    kernel.init()
    kernel.instant(1, "7")
    assert payloads(run(complete(kernel.text()))) == [[7]] * SLOTS


def test_the_buffer_must_be_the_kernels_own_argument() -> None:
    text = Kernel().text()
    kernel = Kernel()
    kernel.init()
    load = "ld.param.b64 %rd1, [k_param_0];"
    made = "ld.param.b64 %rd2, [k_param_0];\n\tadd.s64 %rd1, %rd2, 128;"
    text = kernel.text().replace(load, made)
    with pytest.raises(KernelError, match="is not the kernel's own argument"):
        complete(text)


def test_a_size_known_when_compiling_is_used() -> None:
    kernel = Kernel()
    kernel.init()
    kernel.instant(1, "3")
    size = abi.segment_bytes(SLOTS, 8) - abi.LAUNCH_HEADER_BYTES
    text = kernel.text().replace("%r1\n", f"{size}\n").replace("%r1,", f"{size},")
    text = text.replace(f"ld.param.b32 {size}, [k_param_1];", "")
    assert payloads(run(complete(text))) == [[3]] * SLOTS


def test_two_inits_are_refused() -> None:
    kernel = Kernel()
    kernel.init()
    kernel.init()
    with pytest.raises(KernelError, match=r"ikp\.init is more than once"):
        complete(kernel.text())


def loading(*lines: str, last: str = "") -> str:
    """Return a completed kernel that runs some lines first, and records one instant behind them."""
    kernel = Kernel()
    kernel.add("ld.param.b64 %rd9, [k_param_0];", *lines)
    kernel.lines.append(last)
    kernel.init()
    kernel.instant(1, "7")
    return complete(kernel.text())


LOADS = ("mov.u32 %r20, %tid.x;", "ld.global.b32 %r21, [%rd9+8];", "ld.global.b32 %r22, [%rd9];")


def slot_is_behind(text: str, code: str) -> bool:
    """Return whether a warp executes some code before it looks for its slot."""
    clocks, loads, slot = text.index("%globaltimer"), text.index(code), text.index("// ikp.slot")
    assert clocks < min(loads, slot)
    return loads < slot


def test_a_warp_looks_for_its_slot_once_its_loads_are_under_way() -> None:
    text = loading(*LOADS, "add.u32 %r23, %r20, 1;", "add.u32 %r24, %r21, %r22;")
    assert slot_is_behind(text, "ld.global.b32 %r22") and not slot_is_behind(text, "add.u32 %r23")
    assert payloads(run(text)) == [[7]] * SLOTS


@pytest.mark.parametrize("waits", ["add.u32 %r23, %r21, 1;", "mov.u32 %r21, 0;"])
def test_the_slot_is_found_before_what_waits_for_a_load(waits: str) -> None:
    text = loading(LOADS[0], LOADS[1], waits, LOADS[2])
    assert slot_is_behind(text, LOADS[1]) and not slot_is_behind(text, LOADS[2])


@pytest.mark.parametrize(
    "stop",
    [
        "st.global.b32 [%rd9], %r20;",
        "bar.sync 0;",
        "atom.global.add.u32 %r30, [%rd9], 1;",
        "ld.acquire.gpu.global.u32 %r30, [%rd9];",
        "ld.volatile.global.u32 %r30, [%rd9];",
        "mov.u32 %r30, %clock;",
        "mov.u64 %rd30, %globaltimer;",
        "shfl.sync.idx.b32 %r30, %r20, 0, 31, -1;",
        "@%p1 bra $L__there;",
        "cp.async.wait_all;",
        "// ikp.clock",
    ],
)
def test_the_slot_is_found_before_what_orders_memory_or_reads_a_clock(stop: str) -> None:
    text = loading(LOADS[0], LOADS[1], stop, LOADS[2], last="$L__there:")
    assert slot_is_behind(text, LOADS[1]) and not slot_is_behind(text, LOADS[2])
    assert not slot_is_behind(loading(stop, *LOADS, last="$L__there:"), LOADS[1])


def test_the_slot_is_found_before_a_loop_and_behind_a_label_that_nothing_names() -> None:
    label = "$L__here:"
    back = ("setp.lt.u32 %p2, %r22, 0;", f"@%p2 bra {label[:-1]};")
    assert slot_is_behind(loading(label, *LOADS), LOADS[2])
    assert not slot_is_behind(loading(label, *LOADS, *back), LOADS[1])


def test_the_slots_code_is_in_no_scope_and_no_assembly_of_another() -> None:
    begin, end = "// begin inline asm", "// end inline asm"
    text = loading(begin, "{", ".reg .u32 q;", LOADS[1], "mov.u32 q, 1;", "}", end)
    assert text.index(end) < text.index("// ikp.slot")
    assert payloads(run(text)) == [[7]] * SLOTS
