"""The verbs as PTX, generated from ``ikp.core.abi``.

The write cursor lives in PTX registers that ``init`` declares at function scope and every later
verb uses by name. Nothing is threaded through the DSL's values, so loops, branches and inlined
helpers need no help from the user. Live registers per thread, from init to the last verb::

    ikp_cur   number of records attempted so far
    ikp_high  high 32 bits of every address in the segment
    ikp_base  low 32 bits of the address of the slot's first record
    ikp_lim   stop: capacity of the slot; ring: capacity - 1, an index mask;
              0 in lanes that never record

One 32-bit compare elects the recording lane and bounds the store together: in lanes other than 0
the limit is 0. A segment never crosses a multiple of 4 GiB (the arena sees to it), so an address is
32-bit arithmetic and the register pair (low, high). It is made of a number that is less than the
capacity: no number of records ever leads out of the slot. The count goes on when the slot is full,
by one unconditional add that compilers fold where several records follow each other.

Every verb is volatile assembly: compilers neither drop, merge nor reorder it against loads, stores
and other such blocks. A record is two parts between comment marks, the clock read and the store,
so that ``ikp.targets.ptx_schedule`` can place each where it costs least. The mark of a store names
its region: the host reads names from the kept PTX of a kernel that came from a compile cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ikp.core import abi
from ikp.core.abi import ClockKind, Language, OverflowMode, SlotState

CLOCK_MARK = "// ikp.clock"
STORE_MARK = "// ikp.store"
END_MARK = "// ikp.end"
INIT_MARK = "// ikp.init"
FINISH_MARK = "// ikp.finish"
SCHEDULE_MARK = "// ikp.schedule"

CLOCK_REGISTER = {ClockKind.CYCLES: "%clock", ClockKind.GLOBALTIMER: "%globaltimer_lo"}


@dataclass(frozen=True, slots=True)
class Asm:
    """An inline-assembly block: ``$0`` is its 32-bit result, ``$1`` and up its operands."""

    code: str
    constraints: str


def region_comment(region: int, name: str) -> str:
    """Return what a store's mark says of its region: ``<id> <name as JSON>``, pure ASCII."""
    return f"{region} {json.dumps(name)}".replace("$", r"\u0024")  # LLVM would expand a dollar


def init(
    clock: ClockKind,
    overflow: OverflowMode,
    schedule: bool = True,
    language: Language = Language.OTHER,
) -> Asm:
    """Operands: the segment's address (u64), bytes for slots (u32; 0 turns recording off).

    The block's first line repeats them for ``ikp.targets.ptx_entry``, which moves the block to the
    kernel's entry. ``schedule`` lets ``ikp.targets.ptx_schedule`` place the kernel's records.
    """
    marks = f"{INIT_MARK} $1 $2\n"
    marks += SCHEDULE_MARK + "\n" if schedule else ""
    code = marks + _INIT.format(
        slots=abi.LAUNCH_HEADER_BYTES,
        align=-abi.ALIGNMENT,
        minimum=abi.min_slot_bytes(overflow),
        many=0xFFFFFFFF,  # warps of a grid too large to count: more than a segment has bytes
        magic=abi.MAGIC,
        abi=abi.ABI_VERSION,
        clock=int(clock),
        overflow=int(overflow),
        language=int(language),
        running=int(SlotState.RUNNING),
        header=abi.SLOT_HEADER_BYTES,
        shift=_SHIFT,
        limit=_LIMIT[overflow],
        **_offsets("launch", abi.LAUNCH_HEADER),
        **_offsets("slot", abi.SLOT_HEADER),
    )
    return Asm(f"{code}\n{END_MARK}\nmov.u32 $0, 0;", "=r,l,r")


def start(clock: ClockKind) -> Asm:
    """No operands; the result is the start word."""
    return Asm(f"{CLOCK_MARK}\nmov.u32 $0, {CLOCK_REGISTER[clock]};\n{END_MARK}", "=r")


def end(tag: int | None, clock: ClockKind, overflow: OverflowMode, comment: str) -> Asm:
    """Store one range. Operands: start word, payload; before them the tag where it is None."""
    if tag is None:
        return _record("$1", "$2", "$3", "=&r,r,r,r", clock, overflow, comment)
    return _record(f"{tag:#x}", "$1", "$2", "=&r,r,r", clock, overflow, comment)


def instant(tag: int | None, clock: ClockKind, overflow: OverflowMode, comment: str) -> Asm:
    """Store one instant. Operand: payload; before it the tag where it is None."""
    if tag is None:
        return _record("$1", "$0", "$2", "=&r,r,r", clock, overflow, comment)
    return _record(f"{tag:#x}", "$0", "$1", "=&r,r", clock, overflow, comment)


def finish() -> Asm:
    """No operands. Writes the exact count and the second clock anchor to the slot header."""
    return Asm(f"{FINISH_MARK}\n{finish_block()}\n{END_MARK}\nmov.u32 $0, 0;", "=r")


def finish_block() -> str:
    """Return the text of finish, which has neither operands nor a result."""
    return _FINISH.format(
        header=abi.SLOT_HEADER_BYTES,
        finished=int(SlotState.FINISHED),
        **_offsets("slot", abi.SLOT_HEADER),
    )


def _record(
    tag: str,
    start: str,
    payload: str,
    constraints: str,
    clock: ClockKind,
    overflow: OverflowMode,
    comment: str,
) -> Asm:
    code = _RECORD.format(
        clock=CLOCK_REGISTER[clock],
        index=_INDEX[overflow].format(shift=_SHIFT),
        tag=tag,
        start=start,
        payload=payload,
        comment=comment,
    )
    return Asm(code, constraints)


def _offsets(prefix: str, dtype: abi.StructDType) -> dict[str, int]:
    return {f"{prefix}_{name}": offset for name, offset in abi.field_offsets(dtype).items()}


_SHIFT = abi.RECORD_BYTES.bit_length() - 1

_RECORD = f"""{CLOCK_MARK}
mov.u32 $0, {{clock}};
{STORE_MARK} {{comment}}
{{{{
.reg .pred p; .reg .u32 n; .reg .u64 a;
{{index}}
add.u32 n, n, ikp_base;
mov.b64 a, {{{{n, ikp_high}}}};
@p st.global.v4.b32 [a], {{{{{{tag}}, {{start}}, $0, {{payload}}}}}};
add.u32 ikp_cur, ikp_cur, 1;
}}}}
{END_MARK}"""

_INDEX = {
    OverflowMode.STOP: "setp.lt.u32 p, ikp_cur, ikp_lim;\nshl.b32 n, ikp_cur, {shift};",
    OverflowMode.WRAP: "setp.ne.u32 p, ikp_lim, 0;\nand.b32 n, ikp_cur, ikp_lim;\n"
    "shl.b32 n, n, {shift};",
}

_LIMIT = {
    OverflowMode.STOP: "@ok mov.u32 ikp_lim, t;",
    # The capacity is the largest power of two that fits, so that wrapping is one mask.
    OverflowMode.WRAP: """bfind.u32 t, t;
mov.u32 u, 1;
shl.b32 t, u, t;
@ok sub.u32 ikp_lim, t, 1;""",
}

# The anchor is read first: ptxas moves nothing across a clock read, and so is free to mix the rest
# of this block into the kernel's own prologue.
_INIT = """.reg .u32 ikp_cur, ikp_high, ikp_base, ikp_lim;
{{
.reg .u32 gx, gy, gz, bx, by, bz, block, thread, warp, warps, bytes, low, slot, grid, sm, t, u;
.reg .u64 a, ns, clk;
.reg .pred ok, first;
mov.u64 ns, %globaltimer; mov.u64 clk, %clock64;
mov.u32 gx, %nctaid.x; mov.u32 gy, %nctaid.y; mov.u32 gz, %nctaid.z;
mov.u32 bx, %ntid.x; mov.u32 by, %ntid.y; mov.u32 bz, %ntid.z;
mov.u32 t, %ctaid.z; mov.u32 u, %ctaid.y; mad.lo.u32 block, t, gy, u;
mov.u32 u, %ctaid.x; mad.lo.u32 block, block, gx, u;
mov.u32 t, %tid.z; mov.u32 u, %tid.y; mad.lo.u32 thread, t, by, u;
mov.u32 u, %tid.x; mad.lo.u32 thread, thread, bx, u;
mul.lo.u32 warps, bx, by; mul.lo.u32 warps, warps, bz;
add.u32 warps, warps, 31; shr.u32 warps, warps, 5;
shr.u32 warp, thread, 5;
mul.wide.u32 a, gx, gy; min.u64 a, a, {many}; cvt.u32.u64 t, a;
mul.lo.u32 u, gz, warps; mul.wide.u32 a, t, u; min.u64 a, a, {many}; cvt.u32.u64 t, a;
div.u32 bytes, $2, t; and.b32 bytes, bytes, {align};
and.b32 u, thread, 31; setp.eq.u32 ok, u, 0; setp.ge.and.u32 ok, bytes, {minimum}, ok;
mov.b64 {{low, ikp_high}}, $1;
mad.lo.u32 t, block, warps, warp; mad.lo.u32 slot, t, bytes, low;
add.u32 slot, slot, {slots};
mov.u32 ikp_cur, 0; mov.u32 ikp_lim, 0; add.u32 ikp_base, slot, {header};
sub.u32 t, bytes, {header}; shr.u32 t, t, {shift};
{limit}
mov.u64 a, %gridid; cvt.u32.u64 grid, a;
or.b32 t, block, thread; setp.eq.u32 first, t, 0; setp.ne.and.u32 first, $2, 0, first;
mov.b64 a, {{low, ikp_high}};
@first ld.global.u32 t, [a+{launch_launches}]; add.u32 t, t, 1;
@first st.global.v4.b32 [a+{launch_magic}], {{{magic}, {abi}, gx, gy}};
@first st.global.v4.b32 [a+{launch_grid_z}], {{gz, bx, by, bz}};
@first st.global.v4.b32 [a+{launch_warps_per_block}], {{warps, bytes, {clock}, {overflow}}};
@first st.global.v4.b32 [a+{launch_grid_id}], {{grid, t, {language}, 0}};
mov.u32 sm, %smid;
mov.b64 a, {{slot, ikp_high}};
mov.u32 u, 0;
@ok st.global.v4.b32 [a+{slot_finish_ns}], {{u, u, u, u}};
@ok st.global.v4.b32 [a+{slot_sm}], {{sm, grid, {running}, u}};
@ok st.global.b32 [a+{slot_attempted}], u;
@ok st.global.v2.b64 [a+{slot_init_ns}], {{ns, clk}};
}}"""

_FINISH = """{{
.reg .pred p; .reg .u32 slot; .reg .u64 a, ns, clk;
setp.ne.u32 p, ikp_lim, 0;
sub.u32 slot, ikp_base, {header};
mov.b64 a, {{slot, ikp_high}};
mov.u64 ns, %globaltimer; mov.u64 clk, %clock64;
@p st.global.v2.b64 [a+{slot_finish_ns}], {{ns, clk}};
@p st.global.b32 [a+{slot_attempted}], ikp_cur;
@p st.global.b32 [a+{slot_state}], {finished};
}}"""
