"""PTX of ``init`` and ``finish``: a warp finds its slot, and writes launch and slot headers.

The stores of the launch header are made from the table of its fields. The code around them has the
address in ``a``, and in ``first`` whether this thread writes it.

Registers that other verbs use are declared by ``init`` at function scope (see ``ikp.targets.ptx``).
All others, and labels, are inside braces, so that compilers may copy a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ikp.core import abi, launch_fields
from ikp.core.abi import Language, Option, OverflowMode, SlotState
from ikp.core.launch_fields import Origin
from ikp.core.segment import Spec
from ikp.targets.ptx import END_MARK, SLOT_ADDRESS, Asm, shift
from ikp.targets.ptx_totals import Counter, declarations, records

Operand = str | int
"""A register's name, or a constant."""


def launch_header_stores(given: Mapping[str, Operand], counts: str = "") -> str:
    """Return the stores, a line each.

    Args:
        given: operands by origin, and of constants by the field's name.
        counts: a register in which launches are counted by the lines made here; without one, the
            count is given, too.
    """
    known = {Origin.LAUNCHES, *given} if counts else {*given}
    written = launch_fields.written(known)
    return "\n".join(
        _counted(store[0].offset, counts)
        if counts and store[0].origin is Origin.LAUNCHES
        else _stored(store[0].offset, [launch_fields.value_of(each, given) for each in store])
        for store in launch_fields.stores(written, Origin.LAUNCHES if counts else None)
    )


def _stored(offset: int, operands: Sequence[Operand]) -> str:
    if len(operands) == 1:
        return f"@first st.global.b32 [a+{offset}], {operands[0]};"
    joined = ", ".join(map(str, operands))
    return f"@first st.global.v{len(operands)}.b32 [a+{offset}], {{{joined}}};"


def _counted(offset: int, register: str) -> str:
    return (
        f"@first ld.global.b32 {register}, [a+{offset}]; add.u32 {register}, {register}, 1;\n"
        f"@first st.global.b32 [a+{offset}], {register};"
    )


INIT_MARK = "// ikp.init"
SLOT_MARK = "// ikp.slot"
SPEC_MARK = "// ikp.spec"
SCHEDULE_MARK = "// ikp.schedule"
FINISH_MARK = "// ikp.finish"


def init(spec: Spec, language: Language = Language.OTHER, counters: Iterable[Counter] = ()) -> Asm:
    """Operands: the segment's address (u64), bytes for slots (u32; 0 turns recording off).

    ``counters`` are those of the kernel's totals, where they are known.

    The block's first line repeats them for Triton's pass ``entry``, which moves the block to the
    kernel's entry; the second has the spec, from which that pass makes ``finish``. The third lets
    the pass ``schedule`` place the kernel's records. What is behind the mark of the slot needs not
    be at the entry: that pass moves it behind the kernel's first loads.
    """
    lines = [
        f"{INIT_MARK} $1 $2",
        f"{SPEC_MARK} {spec}",
        *([SCHEDULE_MARK] if spec.schedule else []),
        ".reg .u32 ikp_cur, ikp_high, ikp_base, ikp_lim;",
        *declarations(counters),
        _ANCHOR,
        SLOT_MARK,
        "{",
        _PLACE,
        _CHOSEN if spec.select else _EVERY,
        _slot(spec),
        _LIMIT[spec.overflow.wraps],
        _launch_header(spec, language),
        _slot_header(spec),
        "}",
        END_MARK,
        "mov.u32 $0, 0;",
    ]
    return Asm("\n".join(line for line in lines if line), "=r,l,r")


def finish(spec: Spec, counters: Iterable[Counter] = ()) -> Asm:
    """No operands. Writes totals, the exact count, and the second clock anchor to the header."""
    block = finish_block(spec, counters)
    return Asm(f"{FINISH_MARK}\n{block}\n{END_MARK}\nmov.u32 $0, 0;", "=r")


def finish_block(spec: Spec, counters: Iterable[Counter] = ()) -> str:
    """Return the text of finish, which has neither operands nor a result.

    Args:
        spec: how the kernel records.
        counters: the regions whose totals are to be written.
    """
    lines = [
        "{",
        ".reg .pred p; .reg .u32 slot; .reg .u64 a, ns, clk;",
        "setp.ne.u32 p, ikp_lim, 0;",
        SLOT_ADDRESS,
        "mov.b64 a, {slot, ikp_high};",
        "mov.u64 ns, %globaltimer; mov.u64 clk, %clock64;",
        records(spec, counters),
        f"@p st.global.v2.b64 [a+{_SLOT['finish_ns']}], {{ns, clk}};",
        f"@p st.global.b32 [a+{_SLOT['attempted']}], ikp_cur;",
        f"@p st.global.b32 [a+{_SLOT['state']}], {int(SlotState.FINISHED)};",
        "}",
    ]
    return "\n".join(line for line in lines if line)


_LAUNCH = abi.field_offsets(abi.LAUNCH_HEADER)
_SLOT = abi.field_offsets(abi.SLOT_HEADER)
_HEADER = abi.SLOT_HEADER_BYTES
_MANY = 0xFFFFFFFF  # the value of a product beyond 32 bits: more than a segment has bytes


# The anchor is read first: ptxas moves nothing across a clock read, so it can mix the rest into the
# kernel's own first instructions.
_ANCHOR = """.reg .u64 ikp_ns, ikp_clk;
mov.u64 ikp_ns, %globaltimer; mov.u64 ikp_clk, %clock64;"""

# Which warp this is: ``warp`` of ``warps`` in ``block``; ``layer`` blocks have one z.
_PLACE = f""".reg .u32 gx, gy, gz, bx, by, bz, block, layer, thread, warp, warps;
.reg .u32 rank, row, rows, slot, slots, bytes, low, grid, sm, launches, over, t, u;
.reg .u64 a;
.reg .pred ok, first, fits;
mov.u32 gx, %nctaid.x; mov.u32 gy, %nctaid.y; mov.u32 gz, %nctaid.z;
mov.u32 bx, %ntid.x; mov.u32 by, %ntid.y; mov.u32 bz, %ntid.z;
mov.u32 t, %ctaid.z; mov.u32 u, %ctaid.y; mad.lo.u32 block, t, gy, u;
mov.u32 u, %ctaid.x; mad.lo.u32 block, block, gx, u;
mov.u32 t, %tid.z; mov.u32 u, %tid.y; mad.lo.u32 thread, t, by, u;
mov.u32 u, %tid.x; mad.lo.u32 thread, thread, bx, u;
or.b32 t, block, thread; setp.eq.u32 first, t, 0; setp.ne.and.u32 first, $2, 0, first;
@first ld.global.u32 launches, [$1+{_LAUNCH["launches"]}];
mul.lo.u32 warps, bx, by; mul.lo.u32 warps, warps, bz;
add.u32 warps, warps, 31; shr.u32 warps, warps, 5;
shr.u32 warp, thread, 5;
and.b32 u, thread, 31; setp.eq.u32 ok, u, 0;"""

# ``row`` of ``rows`` and ``rank``: warp and block among those with a slot, of which there are
# ``slots``.
# The first warps of a kernel wait for what is needed for ``slots``, and not for whether that is too
# many: each instruction in that row takes them five cycles.
_EVERY = """mov.u32 rank, block; mov.u32 row, warp; mov.u32 rows, warps;
mul.lo.u32 layer, gx, gy; mul.hi.u32 over, gx, gy;
mul.lo.u32 t, gz, warps; mul.hi.u32 u, layer, t; or.b32 over, over, u;
mul.lo.u32 slots, layer, t; max.u32 slots, slots, 1;"""

_CHOSEN = f"""{{
.reg .u32 mask, from, step, most, last, blocks; .reg .pred p;
mul.wide.u32 a, gx, gy; min.u64 a, a, {_MANY}; cvt.u32.u64 layer, a; mov.u32 over, 0;
mov.u32 mask, 0; mov.u32 from, 0; mov.u32 step, 1; mov.u32 most, 1;
setp.ne.u32 p, $2, 0;
@p ld.global.v4.b32 {{mask, from, step, most}}, [$1+{_LAUNCH["warps"]}];
sub.u32 t, 32, warps; mov.u32 u, {_MANY}; shr.u32 u, u, t; and.b32 mask, mask, u;
popc.b32 rows, mask; max.u32 rows, rows, 1;
mov.u32 u, 1; shl.b32 u, u, warp; and.b32 t, mask, u; setp.ne.and.u32 ok, t, 0, ok;
sub.u32 u, u, 1; and.b32 t, mask, u; popc.b32 row, t;
setp.ge.and.u32 ok, block, from, ok; sub.u32 t, block, from;
div.u32 rank, t, step; mul.lo.u32 u, rank, step; setp.eq.and.u32 ok, t, u, ok;
setp.lt.and.u32 ok, rank, most, ok;
mul.wide.u32 a, layer, gz; min.u64 a, a, {_MANY}; cvt.u32.u64 blocks, a;
sub.u32 last, blocks, 1; max.u32 last, last, from; sub.u32 t, last, from;
div.u32 t, t, step; add.u32 t, t, 1; min.u32 blocks, t, most;
mul.wide.u32 a, blocks, rows; min.u64 a, a, {_MANY}; cvt.u32.u64 slots, a;
}}"""


def _slot(spec: Spec) -> str:
    """Return code that sets the cursor's registers; ``t`` becomes the capacity of the slot."""
    return f"""div.u32 bytes, $2, slots; and.b32 bytes, bytes, {-abi.ALIGNMENT};
setp.eq.u32 fits, over, 0; selp.u32 bytes, bytes, 0, fits;
setp.ge.and.u32 ok, bytes, {abi.min_slot_bytes(spec.overflow, spec.clock)}, ok;
mov.b64 {{low, ikp_high}}, $1;
mad.lo.u32 t, rank, rows, row; mad.lo.u32 slot, t, bytes, low;
add.u32 slot, slot, {abi.LAUNCH_HEADER_BYTES};
mov.u32 ikp_cur, 0; mov.u32 ikp_lim, 0; add.u32 ikp_base, slot, {_HEADER};
sub.u32 t, bytes, {_HEADER}; shr.u32 t, t, {shift(spec)};"""


_LIMIT = {
    False: "@ok mov.u32 ikp_lim, t;",
    # The capacity is the largest power of two that fits, so that wrapping is one mask.
    True: """bfind.u32 t, t;
mov.u32 u, 1;
shl.b32 t, u, t;
@ok sub.u32 ikp_lim, t, 1;""",
}


def _launch_header(spec: Spec, language: Language) -> str:
    given: dict[str, Operand] = {
        **launch_fields.sizes(("gx", "gy", "gz"), ("bx", "by", "bz")),
        Origin.WARPS: "warps",
        Origin.SLOT_BYTES: "bytes",
        Origin.GRID_ID: "grid",
        Origin.LAUNCHES: "launches",
        "clock": int(spec.clock),
        "overflow": int(spec.overflow),
        "language": int(language),
        "options": Option.SELECTED * spec.select + Option.TOTALS * spec.totals,
    }
    stores = launch_header_stores(given)
    return f"""mov.u64 a, %gridid; cvt.u32.u64 grid, a;
mov.b64 a, {{low, ikp_high}}; @first add.u32 launches, launches, 1;
{stores}"""


def _slot_header(spec: Spec) -> str:
    if spec.overflow is OverflowMode.STREAM:  # the published words: none is of an earlier launch
        return f"{_SLOT_HEADER}\n@ok st.global.v4.b32 [a+{_SLOT['attempted']}], {{u, u, u, u}};"
    return _SLOT_HEADER


_SLOT_HEADER = f"""mov.u32 sm, %smid;
mov.b64 a, {{slot, ikp_high}};
mov.u32 u, 0;
@ok st.global.v4.b32 [a+{_SLOT["finish_ns"]}], {{u, u, u, u}};
@ok st.global.v4.b32 [a+{_SLOT["sm"]}], {{sm, grid, {int(SlotState.RUNNING)}, u}};
@ok st.global.b32 [a+{_SLOT["attempted"]}], u;
@ok st.global.v2.b64 [a+{_SLOT["init_ns"]}], {{ikp_ns, ikp_clk}};"""
