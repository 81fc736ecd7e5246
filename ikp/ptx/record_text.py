"""The PTX text of record code: entry, starts and ends of ranges, and exits.

The *cell* says where to record: 16 bytes of the module's constant memory, which the host writes
before a launch. All zero, they say that nothing is recorded::

    | address of the segment u64 | records of a slot u32 | slots u32 |

Where a session chooses warps or blocks, a selection lies behind it, as in machine code.

Two registers live from the entry to the last record: the cursor, and the low half of the address of
the warp's first record. All else is in the cell, whose constants machine code names as operands.
Lanes that never record begin to count at 2**31, which is more than any slot has room for: so one
comparison elects the lane and bounds the store. A record's address is made of a number below the
slot's capacity, so no number of records leads out of a slot.

Segments are dense, as those of finished machine code (decision 47).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ikp.core import abi, launch_fields
from ikp.core.abi import ClockKind, Language, Option, OverflowMode
from ikp.core.launch_fields import Origin
from ikp.core.segment import MAX_WARPS
from ikp.probes.code.entry_code import CELL, CELL_BYTES
from ikp.probes.code.range_code import range_tag
from ikp.probes.code.selection_code import NO_SLOT, OFFSET, ROW_OF_WARP, ROWS, SELECTION_BYTES
from ikp.probes.placement.register_choice import warps_of
from ikp.sass.cubins.capacity import LANES
from ikp.targets import ptx_slot
from ikp.targets.ptx_slot import Operand

_SILENT: Final = 1 << 31
"""The first cursor of lanes that never record."""
_MOST_IN_A_ROW: Final = 8
_HEADER = abi.field_offsets(abi.DENSE_HEADER)


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The size of a kernel's blocks, as far as known before its launch, and whether it selects."""

    threads: tuple[int, int, int] | None
    select: bool = False  # sessions choose which warps and blocks record

    @property
    def warps(self) -> int:
        """Warps of a block; 0 where that is not known."""
        x, y, z = self.threads or (0, 0, 0)
        return warps_of(x * y * z)

    @property
    def together(self) -> int:
        """How many warps' records lie in a row: a power of two that divides a block."""
        if self.select:
            return 1
        return min(self.warps & -self.warps, _MOST_IN_A_ROW) or 1

    @property
    def one_way(self) -> bool:
        """Whether threads are counted by x alone."""
        return self.threads is not None and self.threads[1:] == (1, 1)


def declaration(shape: BlockShape) -> str:
    """Return the declaration of the cell, with a selection behind it where sessions choose."""
    size = CELL_BYTES + SELECTION_BYTES * shape.select
    return f".visible .const .align 16 .b8 {CELL}[{size}];\n"


def registers(starts: int) -> str:
    """Return the declaration of the registers of records, with those of so many ranges' starts."""
    kept = f".reg .b32 %ikp_start<{starts}>;\n" if starts else ""
    return f".reg .b32 ikp_cur, ikp_base;\n{kept}"


def entry(shape: BlockShape, whole: int, language: Language) -> str:
    """Return the code before a kernel's first instruction.

    Args:
        shape: the size of its blocks.
        whole: the id of the range from each warp's entry to its exit.
        language: the kernel language that it was written in.
    """
    return f"""{{
.reg .pred ok, first; .reg .b32 low, high, ns, clk, room, part, row, sm, who, t, u, gx, gy, gz;
{_SLOT_REGISTERS}.reg .b64 a, long;
mov.u64 a, %globaltimer; mov.u64 long, %clock64; cvt.u32.u64 ns, a; cvt.u32.u64 clk, long;
{_slot(shape)}ld.const.v4.b32 {{low, high, room, t}}, [{CELL}];
setp.eq.u32 ok, lane, 0; setp.lt.and.u32 ok, slot, t, ok;
mov.u32 ikp_cur, {_SILENT:#x}; @ok mov.u32 ikp_cur, 0;
shl.b32 u, t, {abi.DENSE_HEADER_BYTES.bit_length() - 1};
add.u32 u, u, low;
and.b32 row, slot, {shape.together - 1}; sub.u32 part, slot, row;
mad.lo.u32 part, part, room, row;
mad.lo.u32 ikp_base, part, {abi.RECORD_BYTES}, u;
add.u32 ikp_base, ikp_base, {abi.LAUNCH_HEADER_BYTES};
mov.u64 a, %gridid; cvt.u32.u64 t, a; mov.u32 sm, %smid; and.b32 sm, sm, 0xffff;
shl.b32 who, t, 16; or.b32 who, who, sm;
mad.lo.u32 u, slot, {abi.DENSE_HEADER_BYTES}, low; add.u32 u, u, {abi.LAUNCH_HEADER_BYTES};
mov.b64 a, {{u, high}}; mov.u32 sm, 0;
@ok st.global.v4.b32 [a], {{ns, clk, sm, who}};
{_launch_header(shape, whole, language)}}}
"""


def starts(numbers: Sequence[int]) -> str:
    """Return the code that begins ranges at one point: the clock is read once, kept for each."""
    read = f"mov.u32 %ikp_start{numbers[0]}, %clock;\n"
    return read + "".join(f"mov.b32 %ikp_start{n}, %ikp_start{numbers[0]};\n" for n in numbers[1:])


def ends(shape: BlockShape, ranges: Sequence[tuple[int, int]]) -> str:
    """Return the code that ends ranges at one point, and stores their records.

    Args:
        shape: the size of the kernel's blocks.
        ranges: (number of the start, region), the inner ones first.
    """
    bytes_apart = abi.RECORD_BYTES * shape.together
    stored = [
        f"""setp.lt.u32 p, ikp_cur, room; mad.lo.u32 n, ikp_cur, {bytes_apart}, ikp_base;
mov.b64 a, {{n, high}};
@p st.global.v4.b32 [a], {{{range_tag(region):#x}, %ikp_start{start}, now, nothing}};
add.u32 ikp_cur, ikp_cur, 1;
"""
        for start, region in ranges
    ]
    return f"""{{
.reg .pred p; .reg .b32 now, n, high, room, nothing; .reg .b64 a;
mov.u32 now, %clock;
ld.const.b32 high, [{CELL}+4]; ld.const.b32 room, [{CELL}+8];
{"".join(stored)}}}
"""


def leave(shape: BlockShape, number: int, guard: str = "") -> str:
    """Return the code where threads end: the first of a warp completes the slot's header.

    Args:
        shape: the size of the kernel's blocks.
        number: of this exit.
        guard: of the instruction that ends threads, "!%p1"; those that go on skip this code.
    """
    stays = guard[1:] if guard.startswith("!") else f"!{guard}"
    skip, here = (
        (f"@{stays} bra ikp_stays{number};\n", f"ikp_stays{number}:\n") if guard else ("", "")
    )
    return f"""{skip}{{
.reg .pred p; .reg .b32 low, high, n, t, u; {_SLOT_REGISTERS}.reg .b64 a, ns, clk;
mov.u64 ns, %globaltimer; mov.u64 clk, %clock64;
{_slot(shape)}setp.lt.u32 p, ikp_cur, {_SILENT:#x};
ld.const.b32 low, [{CELL}]; ld.const.b32 high, [{CELL}+4];
mad.lo.u32 n, slot, {abi.DENSE_HEADER_BYTES}, low; add.u32 n, n, {abi.LAUNCH_HEADER_BYTES};
mov.b64 a, {{n, high}};
@p st.global.b32 [a+{_HEADER["attempted"]}], ikp_cur;
@p st.global.v2.b64 [a+{_HEADER["finish_ns"]}], {{ns, clk}};
}}
{here}"""


_SLOT_REGISTERS = ".reg .b32 slot, lane, block, thread, warps, bx, by, bz;\n"


def _slot(shape: BlockShape) -> str:
    """Return the code for the number of a warp's slot, and of a thread in its warp."""
    thread = (
        f"mov.u32 thread, %tid.x; mov.u32 warps, {shape.warps};\n"
        if shape.one_way
        else f"""mov.u32 bx, %ntid.x; mov.u32 by, %ntid.y; mov.u32 bz, %ntid.z;
mov.u32 thread, %tid.z; mov.u32 lane, %tid.y; mad.lo.u32 thread, thread, by, lane;
mov.u32 lane, %tid.x; mad.lo.u32 thread, thread, bx, lane;
mul.lo.u32 warps, bx, by; mad.lo.u32 warps, warps, bz, {LANES - 1}; shr.u32 warps, warps, 5;
"""
    )
    found = f"""{thread}mov.u32 block, %ctaid.z; mov.u32 lane, %nctaid.y; mov.u32 slot, %ctaid.y;
mad.lo.u32 block, block, lane, slot;
mov.u32 lane, %nctaid.x; mov.u32 slot, %ctaid.x; mad.lo.u32 block, block, lane, slot;
shr.u32 slot, thread, 5; mad.lo.u32 slot, block, warps, slot; and.b32 lane, thread, {LANES - 1};
"""
    return found + _SELECTED if shape.select else found


_SELECTED = f"""{{
.reg .pred mine; .reg .b32 number, inverse, shift, blocks, row, rows; .reg .b64 at, cell;
ld.const.v4.b32 {{number, inverse, shift, blocks}}, [{CELL}+{CELL_BYTES + OFFSET}];
ld.const.b32 rows, [{CELL}+{CELL_BYTES + ROWS}];
shr.u32 row, thread, 5; cvt.u64.u32 at, row; mov.u64 cell, {CELL}; add.u64 at, at, cell;
ld.const.u8 row, [at+{CELL_BYTES + ROW_OF_WARP}];
mad.lo.u32 number, block, inverse, number; shf.r.wrap.b32 number, number, number, shift;
setp.lt.u32 mine, row, {MAX_WARPS}; setp.lt.and.u32 mine, number, blocks, mine;
mov.b32 block, slot;
mad.lo.u32 slot, number, rows, row; selp.b32 slot, slot, {NO_SLOT}, mine;
}}
"""
"""Code for a warp's number among those that record, if it does; ``block`` has that among all."""


def _launch_header(shape: BlockShape, whole: int, language: Language) -> str:
    """Return the code by which one thread of the launch writes the launch header."""
    # Where some warps are selected, the launch's first warp need not be one of them.
    first = (
        """or.b32 u, block, lane; setp.eq.u32 first, u, 0; setp.ne.and.u32 first, room, 0, first;
"""
        if shape.select
        else "setp.eq.and.u32 first, slot, 0, ok;\n"
    )
    threads = shape.threads if shape.one_way else None
    given: dict[str, Operand] = {
        **launch_fields.sizes(("gx", "gy", "gz"), threads or ("bx", "by", "bz")),
        Origin.WARPS: "warps",
        Origin.SLOT_BYTES: "u",
        Origin.GRID_ID: "t",
        "clock": int(ClockKind.CYCLES),
        "overflow": int(OverflowMode.STOP),
        "language": int(language),
        "options": int(Option.DENSE | Option.SELECTED * shape.select),
        "whole": whole,
        "together": shape.together,
    }
    return f"""{first}mov.u32 gx, %nctaid.x; mov.u32 gy, %nctaid.y; mov.u32 gz, %nctaid.z;
mov.b64 a, {{low, high}}; mad.lo.u32 u, room, {abi.RECORD_BYTES}, {abi.DENSE_HEADER_BYTES};
{ptx_slot.launch_header_stores(given, counts="t")}
"""
