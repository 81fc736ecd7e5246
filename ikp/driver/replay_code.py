"""``code``: PTX of the last node of a captured graph, which moves records to a log at each replay.

A graph's nodes keep their arguments, so each replay records into the same segments. This node
appends what its replay has recorded to a log: headers, and as many records as were made. A warp
takes some slots of one segment at a time, and reserves room for them by one atomic addition. With
no log set, the node does nothing: the host switches recording by one word of the device's memory.
"""

from __future__ import annotations

from typing import Final

from ikp.core import abi
from ikp.core.abi import ClockKind, Option, OverflowMode, SlotState

CONTROL: Final = {"log": 0, "room": 8, "replays": 16, "most": 20, "counted": 24, "graph": 28}
"""Offsets in a graph's control block: the log's address, 0 for none; the bytes of its data; replays
since the log was set; how many of them are kept; warps of this replay that have read what its last
resets; the graph's number."""
CONTROL_BYTES: Final = 32
"""Behind the control block lie the addresses of the graph's segments."""
LOG_HEADER_BYTES: Final = 16
"""The log begins with the bytes that replays asked for, as 64 bits."""
CHUNK_HEADER_BYTES: Final = 32
"""Before a chunk's headers and records: graph, replay, segment, first slot, slots, units of
records, bytes of a slot's header, 0."""
HEAD: Final = 0xFFFFFFFF
"""The first slot of a chunk that holds a launch header."""
UNIT: Final = abi.ALIGNMENT

WARP: Final = 32
_WORDS: Final = abi.field_offsets(abi.LAUNCH_HEADER)
_SLOT: Final = abi.field_offsets(abi.SLOT_HEADER)
_DENSE: Final = abi.field_offsets(abi.DENSE_HEADER)
_WORD: Final = abi.WORD_BITS // 8
_NAMES: Final = {
    "log": CONTROL["log"],
    "replays": CONTROL["replays"],
    "counted": CONTROL["counted"],
    "segments": CONTROL_BYTES,
    "data": LOG_HEADER_BYTES,
    "chunk_bytes": CHUNK_HEADER_BYTES,
    "first_bytes": CHUNK_HEADER_BYTES + abi.LAUNCH_HEADER_BYTES,
    "head": HEAD,
    "launch_bytes": abi.LAUNCH_HEADER_BYTES,
    "launch_units": abi.LAUNCH_HEADER_BYTES // UNIT,
    "slot_header": abi.SLOT_HEADER_BYTES,
    "dense_header": abi.DENSE_HEADER_BYTES,
    "selected": int(Option.SELECTED),
    "dense": int(Option.DENSE),
    "others": int(Option.OTHERS),
    "wide": int(ClockKind.CYCLES64),
    "wrap": int(OverflowMode.WRAP),
    "finished": int(SlotState.FINISHED),
    "at_launches": _WORDS["launches"],
    "counting_lane": _WORDS["launches"] // UNIT,
    "counting_word": _WORDS["launches"] // _WORD % 4,
}
_OF_LAUNCH: Final = {
    "launched": "launches", "x": "grid_x", "y": "grid_y", "z": "grid_z",
    "warps": "warps_per_block", "size": "slot_bytes", "clock": "clock", "mode": "overflow",
    "options": "options", "chosen": "warps", "begin": "first_block", "step": "block_step",
    "count": "block_count", "together": "together", "margin": "margin",
}  # fmt: skip
"""Registers, and the fields of the launch header that they hold."""
_AHEAD: Final = 4
"""How many units a lane has under way at a time, of slots with many."""
_PARTS: Final = 4
"""How many times 32 slots a warp takes at a time: warps of the node cost more than their work, as
each adds to the same two numbers in memory."""
SLOTS: Final = WARP * _PARTS
"""How many slots a warp takes at a time."""
_FEW: Final = 2
"""Units of a slot that are moved by the slot's own lane, where no slot has more."""
_SLOT_WORDS: Final = abi.SLOT_HEADER_BYTES // _WORD


def _registers(prefix: str, count: int) -> str:
    return ", ".join(f"{prefix}{each}" for each in range(count))


def _row(prefix: str, row: int) -> str:
    return ", ".join(f"{prefix}{4 * row + each}" for each in range(4))


def _launch_header() -> str:
    """Return loads of the launch header's rows, all before the first is waited for."""
    rows = sorted({_WORDS[each] // UNIT for each in _OF_LAUNCH.values()})
    loads = [f"ld.global.v4.u32 {{{_row('h', each)}}}, [segment+{UNIT * each}];" for each in rows]
    names = [f"mov.u32 {to}, h{_WORDS[of] // _WORD};" for to, of in _OF_LAUNCH.items()]
    return "\n".join([*loads, *names, ""])


# By the first line the hook library knows the module as ikp's own.
# All branches are uniform in a warp. Loads come before the stores behind them, which they might
# read: each load that waits for another takes half a microsecond of the graph's time.
_BEGIN: Final = f"""//ikp
.version 7.0
.target sm_70
.address_size 64
.visible .entry ikp_replay(.param .u64 given)
{{
.reg .pred p, q, rows, idle, leads, many;
.reg .u64 control, log, room, segment, first, behind, row, at, bytes, from, to, a, b;
.reg .u32 lane, chunk, number, replay, most, graph, x, y, z, warps, size, clock, mode, launched;
.reg .u32 options, chosen, begin, step, count, together, margin, blocks, slots, items, t, w, low;
.reg .u32 high, header, wide, capacity, pitch, start, begins, made, upto, before, total, ticket;
.reg .u32 warps_of_node, here, unit, j, i, m, g, shift, part, peak, v0, v1, v2, v3;
.reg .u64 apart;
.reg .u32 {_registers("h", abi.LAUNCH_HEADER_BYTES // _WORD)};
.reg .u32 {_registers("s", _PARTS * _SLOT_WORDS)};
.reg .u64 {", ".join(_registers(each, _PARTS) for each in ("slot", "base", "dest"))};
.reg .u32 {", ".join(_registers(each, _PARTS) for each in ("some", "units", "upto"))};
.reg .u32 {", ".join(_registers(each, _PARTS) for each in ("before", "total"))};
.reg .pred {", ".join(_registers(each, _PARTS) for each in ("active", "ours", "long"))};
.reg .u64 {_registers("from", _AHEAD)}, {_registers("to", _AHEAD)};
.reg .u32 {_registers("c", 4 * _PARTS * _FEW)};
.reg .pred {_registers("moves", _PARTS * _FEW)};
ld.param.u64 control, [given];
mov.u32 lane, %tid.x;
mov.u32 chunk, %ctaid.x;
mov.u32 number, %ctaid.y;
mul.wide.u32 a, number, 8;
add.u64 a, control, a;
ld.global.u64 segment, [a+@segments];
ld.volatile.global.v2.u64 {{log, room}}, [control+@log];
ld.volatile.global.v4.u32 {{replay, most, t, graph}}, [control+@replays];
mov.u32 t, %nctaid.x;
mov.u32 w, %nctaid.y;
mul.lo.u32 warps_of_node, t, w;
sub.u32 warps_of_node, warps_of_node, 1;
setp.eq.u64 idle, log, 0;
setp.ge.or.u32 idle, replay, most, idle;
@idle bra COUNTED;
mul.wide.u32 a, lane, {UNIT};
add.u64 from, segment, a;
setp.lt.u32 q, lane, @launch_units;
setp.eq.and.u32 q, chunk, 0, q;
@q ld.global.v4.u32 {{v0, v1, v2, v3}}, [from];
{_launch_header()}setp.eq.u32 idle, launched, 0;
setp.eq.u32 q, lane, @counting_lane;
@q mov.u32 v@counting_word, launched;

COUNTED:
setp.eq.u32 q, lane, 0;
mov.u32 ticket, 0;
@q atom.global.inc.u32 ticket, [control+@counted], warps_of_node;
@idle bra DONE;

mul.lo.u32 blocks, x, y;
mul.lo.u32 blocks, blocks, z;
mul.lo.u32 slots, blocks, warps;
and.b32 t, options, @others;
setp.ne.u32 q, t, 0;
selp.u32 items, slots, 0, q;
and.b32 t, options, @selected;
setp.eq.u32 p, t, 0;
@p bra SIZES;
setp.eq.u32 p, step, 0;
@p bra BARE;
sub.u32 t, 32, warps;
mov.u32 w, -1;
shr.u32 w, w, t;
and.b32 w, w, chosen;
popc.b32 w, w;
setp.lt.u32 q, begin, blocks;
sub.u32 t, blocks, begin;
selp.u32 t, t, 0, q;
add.u32 t, t, step;
sub.u32 t, t, 1;
div.u32 t, t, step;
min.u32 t, t, count;
mul.lo.u32 slots, t, w;
SIZES:
add.u32 items, items, slots;
and.b32 t, options, @dense;
setp.ne.u32 rows, t, 0;
selp.u32 header, @dense_header, @slot_header, rows;
selp.u32 pitch, @dense_header, size, rows;
mul.lo.u32 t, margin, 16;
selp.u32 t, t, 0, rows;
add.u32 t, t, header;
setp.lt.u32 p, size, t;
@p bra BARE;
sub.u32 t, size, t;
setp.ge.u32 q, clock, @wide;
selp.u32 wide, 2, 1, q;
add.u32 w, wide, 3;
shr.u32 capacity, t, w;
setp.ge.u32 q, mode, @wrap;
setp.lt.u32 p, capacity, 1;
@p bra BARE;
bfind.u32 t, capacity;
mov.u32 w, 1;
shl.b32 w, w, t;
selp.u32 capacity, w, capacity, q;
selp.u32 t, 2, 1, q;
setp.lt.u32 p, capacity, t;
@p bra BARE;
bfind.u32 shift, together;
mov.u32 w, 1;
shl.b32 w, w, shift;
setp.ne.u32 p, w, together;
setp.eq.or.u32 p, together, 0, p;
and.pred p, p, rows;
@p bra BARE;
add.u64 first, segment, @launch_bytes;
mul.wide.u32 behind, slots, size;
add.u64 behind, first, behind;
mul.wide.u32 row, slots, @dense_header;
add.u64 row, first, row;
bra SOME;
BARE:
mov.u32 items, 0;
mov.u32 header, 0;
mov.u32 pitch, 0;
mov.u32 capacity, 0;
mov.u32 wide, 1;
mov.u32 shift, 0;
setp.ne.u32 rows, items, items;
mov.u64 first, segment;
mov.u64 behind, segment;
mov.u64 row, segment;

SOME:
mul.lo.u32 start, chunk, {SLOTS};
setp.eq.u32 leads, chunk, 0;
mov.u64 bytes, 0;
mov.u32 peak, 0;
mov.u64 apart, {UNIT};
mul.wide.u32 a, together, {UNIT};
selp.u64 apart, a, apart, rows;
"""


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
not.pred long{k}, rows;
and.pred long{k}, long{k}, active{k};
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


def _headers(k: int, line: str) -> str:
    """Return a line for each row of a slot's header; short headers have the first rows alone."""
    half = abi.DENSE_HEADER_BYTES // UNIT
    rows = range(abi.SLOT_HEADER_BYTES // UNIT)
    each = _SLOT_WORDS // 4 * k
    return "".join(
        line.format(
            guard=f"{'active' if at < half else 'long'}{k}",
            words=_row("s", each + at),
            at=UNIT * at,
            k=k,
        )
        for at in rows
    )


def _counted(k: int) -> str:
    """Return how many units of a lane's slot are to be moved, summed up over the lanes."""
    at = _SLOT_WORDS * k
    dense, plain = _DENSE["attempted"] // _WORD, _SLOT["attempted"] // _WORD
    ended = _DENSE["finish_ns"] // _WORD
    return f"""selp.u32 made, s{at + dense}, s{at + plain}, rows;
or.b32 t, s{at + ended}, s{at + ended + 1};
setp.ne.u32 p, t, 0;
and.pred p, p, rows;
not.pred q, rows;
setp.eq.and.u32 q, s{at + _SLOT["state"] // _WORD}, @finished, q;
or.pred p, p, q;
and.pred p, p, ours{k};
and.pred p, p, active{k};
min.u32 made, made, capacity;
selp.u32 made, made, 0, p;
mul.lo.u32 units{k}, made, wide;
max.u32 peak, peak, units{k};
mov.u32 upto{k}, units{k};
""" + "".join(_SCAN.format(to=f"upto{k}", do="add", d=each) for each in _HALVES)


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
        lines += [f"@moves{n} ld.global.v4.u32 {{{_row('c', n)}}}, [b];"]
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
    """Return stores of one part's headers, and of its few records; its slots are empty then."""
    stores = "".join(
        f"@moves{_FEW * k + f} st.global.v4.u32 [b+{UNIT * f}], {{{_row('c', _FEW * k + f)}}};\n"
        for f in range(_FEW)
    )
    moved = _headers(k, "@{guard} st.global.v4.u32 [a+{at}], {{{words}}};\n")
    emptied = _headers(k, "@{guard} st.global.v4.u32 [slot{k}+{at}], {{t, t, t, t}};\n")
    return f"""setp.eq.u32 p, some{k}, 0;
@p bra MANY;
add.u32 w, start, {WARP * k};
@q st.global.v4.u32 [to], {{graph, replay, number, w}};
@q st.global.v4.u32 [to+16], {{some{k}, total{k}, header, t}};
add.u64 to, to, @chunk_bytes;
mul.wide.u32 a, lane, header;
add.u64 a, to, a;
{moved}{emptied}mul.wide.u32 b, some{k}, header;
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

    Lanes take units of 16 bytes in turn, whatever slots these are of.
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
            *(f"@moves{k} ld.global.v4.u32 {{{_row('c', k)}}}, [from{k}];\n" for k in each),
            *(
                f"@moves{k} add.u64 b, to, to{k};\n"
                f"@moves{k} st.global.v4.u32 [b], {{{_row('c', k)}}};\n"
                for k in each
            ),
            f"add.u32 here, here, {WARP * _AHEAD};\nbra MOVE;\nMOVED:\n",
            f"add.u32 part, part, 1;\nsetp.lt.u32 p, part, {_PARTS};\n@p bra PICK;\n",
        ]
    )


_END: Final = """NEXT:
mov.u32 t, %nctaid.x;
add.u32 chunk, chunk, t;
bra SOME;

DONE:
shfl.sync.idx.b32 t, ticket, 0, 31, -1;
setp.ne.u32 p, t, warps_of_node;
@p bra OUT;
setp.eq.u32 q, lane, 0;
setp.ne.and.u64 q, log, 0, q;
add.u32 replay, replay, 1;
@q st.global.u32 [control+@replays], replay;
mov.u32 i, 0;
mov.u32 t, 0;
mov.u32 y, %nctaid.y;
AGAIN:
setp.ge.u32 p, i, y;
@p bra OUT;
add.u32 w, i, lane;
setp.lt.u32 q, w, y;
mul.wide.u32 a, w, 8;
add.u64 a, a, control;
@q ld.global.u64 segment, [a+@segments];
@q st.global.u32 [segment+@at_launches], t;
add.u32 i, i, 32;
bra AGAIN;
OUT:
ret;
}
"""
"""The warp that counted itself last resets what the others had all read before they counted."""


def code() -> str:
    """Return the kernel in PTX."""
    parts = range(_PARTS)
    text = "".join(
        [
            _BEGIN,
            *map(_slots_of_lane, parts),
            *(f"mov.u32 s{each}, 0;\n" for each in range(_PARTS * _SLOT_WORDS)),
            *(
                _headers(k, "@{guard} ld.global.v4.u32 {{{words}}}, [slot{k}+{at}];\n")
                for k in parts
            ),
            *map(_counted, parts),
            *(_ROOM.format(k=k) for k in parts),
            _ASKED,
            *(_SCAN.format(to="peak", do="max", d=each) for each in _HALVES),
            _few(),
            _GIVEN,
            *map(_chunk, parts),
            _many(),
            _END,
        ]
    )
    for name in sorted(_NAMES, key=len, reverse=True):
        text = text.replace(f"@{name}", str(_NAMES[name]))
    return text
