"""LLVM IR of ``init``, ``role`` and ``finish`` for AMD GPUs: a wave's slot, and the headers.

Arithmetic is LLVM IR. Stores by one lane, and accesses to ikp's own registers, are assembly.
"""

from __future__ import annotations

from ikp.plugins import Spec, abi, launch_fields
from ikp_amd._llvm_lines import NONE, SAVE, Lines, masked
from ikp_amd._marks import SHIFT, WARP

_NS_PER_TICK = 10
"""``s_memrealtime`` counts at 100 MHz."""

INTRINSICS = {
    "@llvm.amdgcn.s.memtime": "i64 @llvm.amdgcn.s.memtime()",
    "@llvm.amdgcn.s.memrealtime": "i64 @llvm.amdgcn.s.memrealtime()",
    "@llvm.amdgcn.sched.barrier": "void @llvm.amdgcn.sched.barrier(i32 immarg)",
    "@llvm.amdgcn.s.getreg": "i32 @llvm.amdgcn.s.getreg(i32 immarg)",
    "@llvm.amdgcn.workgroup.id.x": "i32 @llvm.amdgcn.workgroup.id.x()",
    "@llvm.amdgcn.workgroup.id.y": "i32 @llvm.amdgcn.workgroup.id.y()",
    "@llvm.amdgcn.workgroup.id.z": "i32 @llvm.amdgcn.workgroup.id.z()",
    "@llvm.amdgcn.workitem.id.x": "i32 @llvm.amdgcn.workitem.id.x()",
    "@llvm.amdgcn.readfirstlane.i32": "i32 @llvm.amdgcn.readfirstlane.i32(i32)",
    "@llvm.amdgcn.implicitarg.ptr": "ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()",
    "@llvm.amdgcn.kernarg.segment.ptr": "ptr addrspace(4) @llvm.amdgcn.kernarg.segment.ptr()",
    "@llvm.umin.i64": "i64 @llvm.umin.i64(i64, i64)",
    "@llvm.umin.i32": "i32 @llvm.umin.i32(i32, i32)",
    "@llvm.umax.i32": "i32 @llvm.umax.i32(i32, i32)",
    "@llvm.ctlz.i32": "i32 @llvm.ctlz.i32(i32, i1 immarg)",
    "@llvm.ctpop.i32": "i32 @llvm.ctpop.i32(i32)",
}
"""The intrinsics that generated code may call, with their declarations."""

_LAUNCH = abi.field_offsets(abi.LAUNCH_HEADER)
_SLOT = abi.field_offsets(abi.SLOT_HEADER)
_HEADER = abi.SLOT_HEADER_BYTES
_MANY = 0xFFFFFFFF  # a product that overflows 32 bits becomes this: more than a segment has bytes
_ADDRESS = "s[ikp_low:ikp_high]"
_WIDTHS = {1: "", 2: "x2", 4: "x4"}


def _register(number: int, offset: int, size: int) -> int:
    """Return the operand of ``s.getreg`` for some bits of a hardware register."""
    return number | offset << 6 | (size - 1) << 11


_HW_ID = _register(4, offset=8, size=8)  # shader engine, array and compute unit in it
_XCC_ID = _register(20, offset=0, size=4)  # which of the GPU's dies


def read_timer(lines: Lines) -> str:
    """Read the timer that all of the GPU shares, in ticks (i64)."""
    return lines.let("ticks", "call i64 @llvm.amdgcn.s.memrealtime()")


def read_cycles(lines: Lines) -> str:
    """Read the counter of the compute unit's cycles (i64)."""
    return lines.let("cycles", "call i64 @llvm.amdgcn.s.memtime()")


def nanoseconds(lines: Lines, ticks: str) -> str:
    """Return the timer's ticks in ns (i64)."""
    return lines.let("ns", f"mul i64 {ticks}, {_NS_PER_TICK}")


def anchor(lines: Lines) -> tuple[str, str, str, str]:
    """Read both clocks, one right after the other; return the words of ns and of cycles."""
    ticks, cycles = read_timer(lines), read_cycles(lines)
    return *lines.halves(nanoseconds(lines, ticks)), *lines.halves(cycles)


def init(
    lines: Lines,
    clocks: tuple[str, ...],
    spec: Spec,
    language: abi.Language,
    waves: int,
    address: str,
    size: str,
) -> None:
    """Add IR for the kernel's entry.

    Args:
        lines: where to add it, with values named ``%ikp.``.
        clocks: the anchor.
        spec: how the kernel records.
        language: of the kernel's source.
        waves: per block; Triton's blocks have one dimension.
        address: value of the segment's address, a pointer.
        size: value of the bytes for slots, i32.
    """
    grid, block = _place(lines)
    if spec.select:
        rank, row, rows, slots, chosen = _chosen(lines, address, grid, block, waves)
    else:
        rank, row, rows, chosen = block, "%ikp.wave", str(waves), "true"
        slots = _product(lines, "slots", "%ikp.layer", _times(lines, "column", grid[2], rows))
    lines.let("room", f"udiv i32 {size}, {slots}")
    lines.let("bytes", f"and i32 %ikp.room, {-abi.ALIGNMENT}")
    lines.let("fits", f"icmp uge i32 %ikp.bytes, {abi.min_slot_bytes(spec.overflow)}")
    lines.let("ok", f"select i1 {chosen}, i1 %ikp.fits, i1 false")
    lines.let("segment", f"ptrtoint ptr addrspace(1) {address} to i64")
    low, high = lines.halves("%ikp.segment")
    lines.let("rank.rows", f"mul i32 {rank}, {rows}")
    lines.let("number", f"add i32 %ikp.rank.rows, {row}")
    lines.let("offset", "mul i32 %ikp.number, %ikp.bytes")
    lines.let("at", f"add i32 %ikp.offset, {abi.LAUNCH_HEADER_BYTES}")
    lines.let("slot", f"add i32 {low}, %ikp.at")
    lines.let("limit", f"select i1 %ikp.ok, i32 {_limit(lines, spec.overflow)}, i32 0")
    _set_up(lines, high)
    _grid_id(lines)
    _launch_header(lines, spec, language, waves, grid, low, size)
    _slot_header(lines, clocks)


def _place(lines: Lines) -> tuple[list[str], str]:
    """Find the grid (x, y, z), the linear block and the wave in it; return the first two."""
    lines.let("hidden", "call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()")
    grid, ids = [], []
    for at, axis in enumerate("xyz"):  # the hidden arguments begin with the grid's blocks
        code = f"getelementptr i8, ptr addrspace(4) %ikp.hidden, i64 {4 * at}"
        pointer = lines.let(f"hidden.{axis}", code)
        grid.append(lines.let(f"g{axis}", f"load i32, ptr addrspace(4) {pointer}, align 4"))
        ids.append(lines.let(f"b{axis}", f"call i32 @llvm.amdgcn.workgroup.id.{axis}()"))
    lines.let("plane", f"mul i32 {ids[2]}, {grid[1]}")
    lines.let("line", f"add i32 %ikp.plane, {ids[1]}")
    lines.let("before", f"mul i32 %ikp.line, {grid[0]}")
    block = lines.let("block", f"add i32 %ikp.before, {ids[0]}")
    lines.let("item", "call i32 @llvm.amdgcn.workitem.id.x()")
    lines.let("leader", "call i32 @llvm.amdgcn.readfirstlane.i32(i32 %ikp.item)")
    lines.let("wave", f"lshr i32 %ikp.leader, {WARP.bit_length() - 1}")
    _product(lines, "layer", grid[0], grid[1])
    return grid, block


def _times(lines: Lines, name: str, left: str, right: str) -> str:
    return lines.let(name, f"mul i32 {left}, {right}")


def _product(lines: Lines, name: str, left: str, right: str) -> str:
    """Return a product of 32-bit values, saturated to the largest such value."""
    wide = [
        lines.let(f"{name}.{side}", f"zext i32 {value} to i64")
        for side, value in (("left", left), ("right", right))
    ]
    lines.let(f"{name}.all", f"mul i64 {wide[0]}, {wide[1]}")
    lines.let(f"{name}.most", f"call i64 @llvm.umin.i64(i64 %ikp.{name}.all, i64 {_MANY})")
    return lines.let(name, f"trunc i64 %ikp.{name}.most to i32")


def _chosen(
    lines: Lines, address: str, grid: list[str], block: str, waves: int
) -> tuple[str, str, str, str, str]:
    """Return rank of the block, row and rows of its waves, slots, and whether this wave has one."""
    names = ("mask", "from", "step", "most")
    for at, name in enumerate(names):
        code = f"getelementptr i8, ptr addrspace(1) {address}, i64 {_LAUNCH['warps'] + 4 * at}"
        pointer = lines.let(f"{name}.at", code)
        lines.let(f"{name}.all", f"load i32, ptr addrspace(1) {pointer}, align 4")
    every = _MANY >> (32 - waves)
    lines.let("mask", f"and i32 %ikp.mask.all, {every}")
    first, step, most = (f"%ikp.{name}.all" for name in names[1:])
    lines.let("rows.all", "call i32 @llvm.ctpop.i32(i32 %ikp.mask)")
    lines.let("rows", "call i32 @llvm.umax.i32(i32 %ikp.rows.all, i32 1)")
    lines.let("bit", "shl i32 1, %ikp.wave")
    lines.let("bit.set", "and i32 %ikp.mask, %ikp.bit")
    lines.let("wave.ok", "icmp ne i32 %ikp.bit.set, 0")
    lines.let("bits.below", "sub i32 %ikp.bit, 1")
    lines.let("below", "and i32 %ikp.mask, %ikp.bits.below")
    lines.let("row", "call i32 @llvm.ctpop.i32(i32 %ikp.below)")
    lines.let("after", f"icmp uge i32 {block}, {first}")
    lines.let("from.block", f"sub i32 {block}, {first}")
    lines.let("rank", f"udiv i32 %ikp.from.block, {step}")
    lines.let("rank.back", f"mul i32 %ikp.rank, {step}")
    lines.let("hit", "icmp eq i32 %ikp.rank.back, %ikp.from.block")
    lines.let("early", f"icmp ult i32 %ikp.rank, {most}")
    lines.let("ok.1", "and i1 %ikp.wave.ok, %ikp.after")
    lines.let("ok.2", "and i1 %ikp.ok.1, %ikp.hit")
    chosen = lines.let("chosen", "and i1 %ikp.ok.2, %ikp.early")
    _product(lines, "blocks", "%ikp.layer", grid[2])
    lines.let("last.block", "sub i32 %ikp.blocks, 1")
    lines.let("last", f"call i32 @llvm.umax.i32(i32 %ikp.last.block, i32 {first})")
    lines.let("reach", f"sub i32 %ikp.last, {first}")
    lines.let("steps", f"udiv i32 %ikp.reach, {step}")
    lines.let("ranks", "add i32 %ikp.steps, 1")
    lines.let("kept", f"call i32 @llvm.umin.i32(i32 %ikp.ranks, i32 {most})")
    slots = _product(lines, "slots.chosen", "%ikp.kept", "%ikp.rows")
    return "%ikp.rank", "%ikp.row", "%ikp.rows", slots, chosen


def _limit(lines: Lines, overflow: abi.OverflowMode) -> str:
    lines.let("rest", f"sub i32 %ikp.bytes, {_HEADER}")
    capacity = lines.let("capacity", f"lshr i32 %ikp.rest, {SHIFT}")
    if overflow is abi.OverflowMode.STOP:
        return capacity
    # The capacity is the largest power of two that fits, so that wrapping is one mask.
    lines.let("zeros", f"call i32 @llvm.ctlz.i32(i32 {capacity}, i1 false)")
    lines.let("shift", "sub i32 31, %ikp.zeros")
    lines.let("power", "shl i32 1, %ikp.shift")
    return lines.let("index.mask", "sub i32 %ikp.power, 1")


def _set_up(lines: Lines, high: str) -> None:
    lines.let("records", f"add i32 %ikp.slot, {_HEADER}")
    lines.assembly(
        [
            "; ikp.init",
            "s_mov_b32 s[ikp_cur], 0",
            "v_readfirstlane_b32 s[ikp_base], $0",
            "v_readfirstlane_b32 s[ikp_high], $1",
            "v_readfirstlane_b32 s[ikp_lim], $2",
        ],
        ["i32 %ikp.records", f"i32 {high}", "i32 %ikp.limit"],
    )


def _grid_id(lines: Lines) -> None:
    """Take the address of the kernel's arguments as the launch's id.

    All waves of a launch share it, and the launch before has another one.
    """
    lines.let("arguments", "call ptr addrspace(4) @llvm.amdgcn.kernarg.segment.ptr()")
    lines.let("arguments.at", "ptrtoint ptr addrspace(4) %ikp.arguments to i64")
    lines.let("launch", "trunc i64 %ikp.arguments.at to i32")


def _launch_header(
    lines: Lines,
    spec: Spec,
    language: abi.Language,
    waves: int,
    grid: list[str],
    low: str,
    size: str,
) -> None:
    options = abi.Option.LANES64 | abi.Option.SELECTED * spec.select
    lines.let("block.wave", "or i32 %ikp.block, %ikp.wave")
    lines.let("is.first", "icmp eq i32 %ikp.block.wave, 0")
    lines.let("is.on", f"icmp ne i32 {size}, 0")
    lines.let("writes", "and i1 %ikp.is.first, %ikp.is.on")
    lines.let("first", "zext i1 %ikp.writes to i32")
    first = ["i32 %ikp.first", f"i32 {low}"]
    load = f"global_load_dword $0, $3, {_ADDRESS} offset:{_LAUNCH['launches']}"
    before = lines.assembly(
        [*_only("$1", "$2"), *masked(load, "s_waitcnt vmcnt(0)")], [*first, NONE], "=&v"
    )
    launches = lines.let("launches", f"add i32 {before}, 1")
    given: dict[str, str | int] = {
        **launch_fields.sizes(grid, (str(waves * WARP), "1", "1")),
        launch_fields.Origin.WARPS: waves,
        launch_fields.Origin.SLOT_BYTES: "%ikp.bytes",
        launch_fields.Origin.GRID_ID: "%ikp.launch",
        launch_fields.Origin.LAUNCHES: launches,
        "clock": int(spec.clock),
        "overflow": int(spec.overflow),
        "language": int(language),
        "options": int(options),
    }
    made = launch_fields.stores(launch_fields.written(given))
    stores = [
        f"global_store_dword{_WIDTHS[len(each)]} $2, ${at}, {_ADDRESS} offset:{each[0].offset}"
        for at, each in enumerate(made, 3)
    ]
    values = [[str(launch_fields.value_of(word, given)) for word in each] for each in made]
    operands = [_operand(lines, each) for each in values]
    lines.assembly([*_only("$0", "$1"), *masked(*stores)], [*first, NONE, *operands])


def _operand(lines: Lines, words: list[str]) -> str:
    """Return some words as one operand of a store."""
    if len(words) == 1:
        return f"i32 {words[0]}"
    return f"<{len(words)} x i32> {lines.vector(*words)}"


def _slot_header(lines: Lines, clocks: tuple[str, ...]) -> None:
    lines.let("unit", f"call i32 @llvm.amdgcn.s.getreg(i32 {_HW_ID})")
    lines.let("die", f"call i32 @llvm.amdgcn.s.getreg(i32 {_XCC_ID})")
    lines.let("die.up", "shl i32 %ikp.die, 8")
    lines.let("sm", "or i32 %ikp.die.up, %ikp.unit")
    words = {
        "finish_ns": lines.vector("0", "0", "0", "0"),
        "sm": lines.vector("%ikp.sm", "%ikp.launch", str(int(abi.SlotState.RUNNING)), "0"),
        "init_ns": lines.vector(*clocks),
    }
    stores = [
        f"global_store_dwordx4 $2, ${at}, {_ADDRESS} offset:{_SLOT[field]}"
        for at, field in enumerate(words, 3)
    ]
    stores.append(f"global_store_dword $2, $2, {_ADDRESS} offset:{_SLOT['attempted']}")
    operands = ["i32 %ikp.limit", "i32 %ikp.slot", NONE]
    lines.assembly(
        [*_only("$0", "$1"), *masked(*stores)],
        [*operands, *(f"<4 x i32> {value}" for value in words.values())],
    )


def role(lines: Lines, number: int, comment: str) -> None:
    """Add IR that writes the id of the role's name to the slot header."""
    store = f"global_store_dword $0, $1, {_ADDRESS} offset:{_SLOT['role']}"
    lines.assembly([f"; ikp.role {comment}", *_own_slot(), *masked(store)], [NONE, f"i32 {number}"])


def finish(lines: Lines, clocks: tuple[str, ...]) -> None:
    """Add IR for one exit of the kernel, where ``clocks`` are the anchor."""
    anchored = lines.vector(*clocks)
    count = lines.assembly(["; ikp.finish", "s_mov_b32 $0, s[ikp_cur]"], [], "=s")
    stores = [
        f"global_store_dwordx4 $0, $1, {_ADDRESS} offset:{_SLOT['finish_ns']}",
        f"global_store_dword $0, $2, {_ADDRESS} offset:{_SLOT['attempted']}",
        f"global_store_dword $0, $3, {_ADDRESS} offset:{_SLOT['state']}",
    ]
    lines.assembly(
        [*_own_slot(), *masked(*stores)],
        [NONE, f"<4 x i32> {anchored}", f"i32 {count}", f"i32 {int(abi.SlotState.FINISHED)}"],
    )


def _own_slot() -> list[str]:
    """Return assembly that addresses the wave's slot header, and elects its lane if it has one."""
    return [
        "s_cmp_lg_u32 s[ikp_lim], 0",
        f"s_cselect_b64 {SAVE}, 1, 0",
        f"s_sub_u32 s[ikp_low], s[ikp_base], {_HEADER}",
    ]


def _only(condition: str, address: str) -> list[str]:
    """Return assembly that takes an address, and elects a lane where a condition is not 0.

    A vector register takes one wait state to be readable. A scalar one that a vector instruction
    wrote takes five before a store may read it.
    """
    return [
        "s_nop 0",
        f"v_readfirstlane_b32 s[ikp_low], {address}",
        f"v_readfirstlane_b32 s[ikp_save], {condition}",
        "s_cmp_lg_u32 s[ikp_save], 0",
        f"s_cselect_b64 {SAVE}, 1, 0",
        "s_nop 4",
    ]
