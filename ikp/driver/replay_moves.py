"""``code``: PTX by which a warp moves headers and records of some slots to the log of replays.

It is a part of ``ikp.driver.replay_code``: names behind an ``@``, and registers that are not
declared here, are that kernel's.
"""

from __future__ import annotations

from typing import Final

from ikp.core import abi

UNIT: Final = abi.ALIGNMENT
WARP: Final = 32
_PARTS: Final = 4
"""How many times 32 slots a warp takes at a time: warps of the node cost more than their work, as
each adds to the same two numbers in memory."""
SLOTS: Final = WARP * _PARTS
"""How many slots a warp takes at a time."""
_AHEAD: Final = 4
"""How many units a lane has under way at a time, of slots with many."""
_FEW: Final = 2
"""Units of a slot that are moved by the slot's own lane, where no slot has more."""
_SLOT: Final = abi.field_offsets(abi.SLOT_HEADER)
_DENSE: Final = abi.field_offsets(abi.DENSE_HEADER)
_WORD: Final = abi.WORD_BITS // 8
_SLOT_WORDS: Final = abi.SLOT_HEADER_BYTES // _WORD


def registers(prefix: str, count: int) -> str:
    """Return the names of some registers, as a declaration has them."""
    return ", ".join(f"{prefix}{each}" for each in range(count))


def row(prefix: str, number: int) -> str:
    """Return the names of four registers in a row."""
    return ", ".join(f"{prefix}{4 * number + each}" for each in range(4))


def _slots_of_lane(k: int) -> str:
    """Return where the header of a lane's slot is, in one part of the warp's slots."""
    return f"""add.u32 t, start, {WARP * k};
max.u32 w, items, t;
sub.u32 w, w, t;
min.u32 some{k}, w, {WARP};
add.u32 t, t, lane;
setp.lt.u32 active{k}, lane, some{k};
setp.lt.u32 ours{k}, t, slots;
mul.wide.u32 a, t, pitch;
add.u64 a, a, first;
sub.u32 w, t, slots;
mul.wide.u32 b, w, @dense_header;
add.u64 b, b, behind;
selp.u64 slot{k}, a, b, ours{k};
shr.u32 g, t, shift;
sub.u32 w, together, 1;
and.b32 w, w, t;
mul.wide.u32 base{k}, w, {UNIT};
sub.u32 w, size, header;
mul.lo.u32 w, w, together;
mul.wide.u32 b, g, w;
add.u64 b, b, row;
add.u64 b, b, base{k};
cvt.u64.u32 base{k}, header;
add.u64 base{k}, base{k}, slot{k};
selp.u64 base{k}, b, base{k}, rows;
mov.u64 dest{k}, 0;
"""


_ROWS: Final = abi.SLOT_HEADER_BYTES // UNIT
_SHARED: Final = f"""mov.u32 w, {_ROWS.bit_length() - 1};
selp.u32 t, {(abi.DENSE_HEADER_BYTES // UNIT).bit_length() - 1}, w, rows;
shr.u32 lanes, {WARP}, t;
shr.u32 ofslot, lane, t;
shl.b32 w, ofslot, t;
sub.u32 ofrow, lane, w;
sub.u32 w, lanes, 1;
and.b32 w, w, lane;
shl.b32 from1st, w, t;
selp.u32 made, {_DENSE["attempted"] // UNIT}, {_SLOT["attempted"] // UNIT}, rows;
add.u32 ofmade, from1st, made;
selp.u32 made, {_DENSE["finish_ns"] // UNIT}, {_SLOT["state"] // UNIT}, rows;
add.u32 ofend, from1st, made;
setp.eq.u32 ends, ofrow, made;
or.pred ends, ends, rows;
sub.u32 w, 5, t;
shr.u32 turn, lane, w;
"""
"""Lanes side by side have the rows of one header, so that each load and store is of whole lines of
memory. Here: how many headers are loaded at a time, and which header and row are the lane's. Then
which lanes have the rows of the lane's own slot that say its number of records, and its end."""


def _header_rows(k: int, n: int) -> str:
    """Return the address of the lane's row of a header, and its load."""
    at = _ROWS * k + n
    return f"""mad.lo.u32 t, lanes, {n}, ofslot;
setp.lt.u32 p, t, some{k};
setp.gt.and.u32 p, {WARP}, t, p;
add.u32 t, t, start;
add.u32 t, t, {WARP * k};
setp.lt.u32 q, t, slots;
mul.wide.u32 a, t, pitch;
add.u64 a, a, first;
sub.u32 w, t, slots;
mul.wide.u32 b, w, @dense_header;
add.u64 b, b, behind;
selp.u64 a, a, b, q;
mul.wide.u32 b, ofrow, {UNIT};
add.u64 line{at}, a, b;
selp.u64 line{at}, line{at}, 0, p;
@p ld.global.v4.u32 {{{row("s", at)}}}, [line{at}];
"""


def _counted(k: int) -> str:
    """Return how many units of a lane's slot are to be moved, summed up over the lanes."""
    count, end = _DENSE["attempted"] % UNIT // _WORD, _SLOT["attempted"] % UNIT // _WORD
    state = _SLOT["state"] % UNIT // _WORD
    gathered = "".join(
        f"""selp.u32 made, s{4 * at + count}, s{4 * at + end}, rows;
shfl.sync.idx.b32 made, made, ofmade, 31, -1;
or.b32 w, s{4 * at}, s{4 * at + 1};
selp.u32 w, w, s{4 * at + state}, rows;
shfl.sync.idx.b32 w, w, ofend, 31, -1;
setp.eq.u32 p, turn, {at - _ROWS * k};
@p mov.u32 units{k}, made;
@p mov.u32 j, w;
"""
        for at in range(_ROWS * k, _ROWS * k + _ROWS)
    )
    return f"""mov.u32 units{k}, 0;
mov.u32 j, 0;
{gathered}selp.u32 w, 0, @finished, rows;
setp.eq.u32 p, j, w;
xor.pred p, p, rows;
and.pred p, p, ours{k};
and.pred p, p, active{k};
min.u32 made, units{k}, capacity;
selp.u32 made, made, 0, p;
mul.lo.u32 units{k}, made, wide;
max.u32 peak, peak, units{k};
mov.u32 upto{k}, units{k};
""" + "".join(_SCAN.format(to=f"upto{k}", do="add", d=each) for each in _HALVES)


def _moved_row(k: int, n: int) -> str:
    """Return the store of the lane's row of a header; no warp of it has ended then."""
    at = _ROWS * k + n
    return f"""setp.ne.u64 p, line{at}, 0;
@p st.global.v4.u32 [a+{UNIT * WARP * n}], {{{row("s", at)}}};
and.pred p, p, ends;
@p st.global.v4.u32 [line{at}], {{t, t, t, t}};
"""


_HALVES: Final = (1, 2, 4, 8, 16)
_SCAN: Final = """shfl.sync.up.b32 t|p, {to}, {d}, 0, -1;
@p {do}.u32 {to}, {to}, t;
"""
_ROOM: Final = """sub.u32 before{k}, upto{k}, units{k};
shfl.sync.idx.b32 total{k}, upto{k}, 31, 31, -1;
mul.wide.u32 a, total{k}, 16;
add.u64 bytes, bytes, a;
mul.wide.u32 a, some{k}, header;
add.u64 bytes, bytes, a;
setp.ne.u32 p, some{k}, 0;
selp.u64 a, @chunk_bytes, 0, p;
add.u64 bytes, bytes, a;
"""
_ASKED: Final = """selp.u64 a, @first_bytes, 0, leads;
add.u64 bytes, bytes, a;
setp.eq.u64 p, bytes, 0;
@p bra DONE;
mov.u64 at, 0;
setp.eq.u32 q, lane, 0;
@q atom.global.add.u64 at, [log], bytes;
"""
"""Reserves ``bytes`` of the log, by one lane for its warp. The warp goes on to load records.

The first chunk of a launch has the launch header before it."""


def _few() -> str:
    """Return loads of records by the lanes of their slots, where no slot has more than a few."""
    at = [(k, f) for k in range(_PARTS) for f in range(_FEW)]
    lines = [f"shfl.sync.idx.b32 t, peak, {WARP - 1}, 31, -1;", f"setp.gt.u32 many, t, {_FEW};"]
    lines += [f"selp.u32 peak, 0, {_FEW}, many;"]
    for k, f in at:
        n = _FEW * k + f
        lines += [f"min.u32 t, units{k}, peak;", f"setp.lt.u32 moves{n}, {f}, t;"]
    for k, f in at:
        n = _FEW * k + f
        lines += [f"add.u64 b, base{k}, {'apart' if f else 0};"]
        lines += [f"@moves{n} ld.global.v4.u32 {{{row('c', n)}}}, [b];"]
    return "\n".join([*lines, ""])


_GIVEN: Final = """mov.b64 {low, high}, at;
shfl.sync.idx.b32 low, low, 0, 31, -1;
shfl.sync.idx.b32 high, high, 0, 31, -1;
mov.b64 at, {low, high};
add.u64 a, at, bytes;
setp.gt.u64 p, a, room;
@p bra NEXT;
add.u64 to, log, at;
add.u64 to, to, @data;
setp.eq.u32 q, lane, 0;
mov.u32 t, 0;
not.pred p, leads;
@p bra CHUNKS;
mov.u32 w, @launch_units;
@q st.global.v4.u32 [to], {graph, replay, number, @head};
@q st.global.v4.u32 [to+16], {t, w, t, t};
mul.wide.u32 a, lane, 16;
add.u64 a, to, a;
setp.lt.u32 p, lane, @launch_units;
@p st.global.v4.u32 [a+@chunk_bytes], {v0, v1, v2, v3};
add.u64 to, to, @first_bytes;
CHUNKS:
"""
"""Finds out where the warp has room, and writes what comes before its headers and records there."""


def _chunk(k: int) -> str:
    """Return stores of one part's headers, and of its few records."""
    stores = "".join(
        f"@moves{_FEW * k + f} st.global.v4.u32 [b+{UNIT * f}], {{{row('c', _FEW * k + f)}}};\n"
        for f in range(_FEW)
    )
    moved = "".join(_moved_row(k, n) for n in range(_ROWS))
    return f"""setp.eq.u32 p, some{k}, 0;
@p bra MANY;
add.u32 w, start, {WARP * k};
@q st.global.v4.u32 [to], {{graph, replay, number, w}};
@q st.global.v4.u32 [to+16], {{some{k}, total{k}, header, t}};
add.u64 to, to, @chunk_bytes;
mul.wide.u32 a, lane, {UNIT};
add.u64 a, to, a;
{moved}mul.wide.u32 b, some{k}, header;
add.u64 to, to, b;
mov.u64 dest{k}, to;
mul.wide.u32 b, before{k}, 16;
add.u64 b, b, to;
{stores}mul.wide.u32 a, total{k}, 16;
add.u64 to, to, a;
"""


_SEARCH: Final = """add.u32 t, j, {less};
shfl.sync.idx.b32 w, upto, t, 31, -1;
setp.le.u32 p, w, unit;
@p add.u32 j, j, {s};
"""
_PLACE: Final = """shfl.sync.idx.b32 w, before, j, 31, -1;
setp.lt.u32 moves{k}, unit, total;
sub.u32 m, unit, w;
add.u32 i, begins, j;
mul.wide.u32 a, i, pitch;
add.u64 a, a, first;
cvt.u64.u32 b, header;
add.u64 a, a, b;
mul.wide.u32 b, m, 16;
add.u64 from{k}, a, b;
not.pred p, rows;
@p bra PLACED{k};
shr.u32 g, i, shift;
sub.u32 w, together, 1;
and.b32 w, w, i;
mad.lo.u32 m, m, together, w;
sub.u32 w, size, header;
mul.lo.u32 w, w, together;
mul.wide.u32 b, g, w;
add.u64 b, b, row;
mul.wide.u32 a, m, 16;
add.u64 from{k}, b, a;
PLACED{k}:
mul.wide.u32 to{k}, unit, 16;
"""


def _many() -> str:
    """Return the loop that moves the records of slots with many, in one part after the other.

    Lanes take units of 16 bytes in turn, each of any slot.
    """
    each = range(_AHEAD)
    picked = [
        f"setp.eq.u32 p, part, {k};\n@p mov.u32 upto, upto{k};\n@p mov.u32 before, before{k};\n"
        f"@p mov.u32 total, total{k};\n@p mov.u64 to, dest{k};\n"
        for k in range(_PARTS)
    ]
    places = [
        f"add.u32 unit, here, {WARP * k};\nsetp.ge.u32 p, unit, total;\n@p bra LOADS;\n"
        "add.u32 unit, unit, lane;\nmov.u32 j, 0;\n"
        + "".join(_SEARCH.format(s=half, less=half - 1) for half in _HALVES[::-1])
        + _PLACE.format(k=k)
        for k in each
    ]
    return "".join(
        [
            "MANY:\nnot.pred p, many;\n@p bra NEXT;\nmov.u32 part, 0;\nPICK:\n",
            *picked,
            f"mul.lo.u32 begins, part, {WARP};\nadd.u32 begins, begins, start;\n",
            "mov.u32 here, 0;\nMOVE:\nsetp.ge.u32 p, here, total;\n@p bra MOVED;\n",
            *(f"setp.lt.u32 moves{k}, total, total;\n" for k in each),
            *places,
            "LOADS:\n",
            *(f"@moves{k} ld.global.v4.u32 {{{row('c', k)}}}, [from{k}];\n" for k in each),
            *(
                f"@moves{k} add.u64 b, to, to{k};\n"
                f"@moves{k} st.global.v4.u32 [b], {{{row('c', k)}}};\n"
                for k in each
            ),
            f"add.u32 here, here, {WARP * _AHEAD};\nbra MOVE;\nMOVED:\n",
            f"add.u32 part, part, 1;\nsetp.lt.u32 p, part, {_PARTS};\n@p bra PICK;\n",
        ]
    )


DECLARED: Final = f"""\
.reg .pred ends;
.reg .u32 lanes, ofslot, ofrow, ofmade, ofend, from1st, turn;
.reg .u64 {registers("line", _PARTS * _ROWS)};
.reg .u32 {registers("s", _PARTS * _SLOT_WORDS)};
.reg .u64 {", ".join(registers(each, _PARTS) for each in ("slot", "base", "dest"))};
.reg .u32 {", ".join(registers(each, _PARTS) for each in ("some", "units", "upto"))};
.reg .u32 {", ".join(registers(each, _PARTS) for each in ("before", "total"))};
.reg .pred {", ".join(registers(each, _PARTS) for each in ("active", "ours"))};
.reg .u64 {registers("from", _AHEAD)}, {registers("to", _AHEAD)};
.reg .u32 {registers("c", 4 * _PARTS * _FEW)};
.reg .pred {registers("moves", _PARTS * _FEW)};
"""


def code() -> str:
    """Return the code from a warp's first slot to the label ``NEXT``."""
    parts = range(_PARTS)
    return "".join(
        [
            *map(_slots_of_lane, parts),
            *(f"mov.u32 s{each}, 0;\n" for each in range(_PARTS * _SLOT_WORDS)),
            _SHARED,
            *(_header_rows(k, n) for k in parts for n in range(_ROWS)),
            *map(_counted, parts),
            *(_ROOM.format(k=k) for k in parts),
            _ASKED,
            *(_SCAN.format(to="peak", do="max", d=each) for each in _HALVES),
            _few(),
            _GIVEN,
            *map(_chunk, parts),
            _many(),
        ]
    )
