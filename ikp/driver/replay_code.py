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
from ikp.driver import replay_moves as moves
from ikp.driver.replay_moves import SLOTS, UNIT

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
_WORDS: Final = abi.field_offsets(abi.LAUNCH_HEADER)
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


def _launch_header() -> str:
    """Return loads of the launch header's rows, all before the first is waited for."""
    rows = sorted({_WORDS[each] // UNIT for each in _OF_LAUNCH.values()})
    loads = [
        f"ld.global.v4.u32 {{{moves.row('h', each)}}}, [segment+{UNIT * each}];" for each in rows
    ]
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
.reg .u32 {moves.registers("h", abi.LAUNCH_HEADER_BYTES // _WORD)};
{moves.DECLARED}ld.param.u64 control, [given];
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
    text = _BEGIN + moves.code() + _END
    for name in sorted(_NAMES, key=len, reverse=True):
        text = text.replace(f"@{name}", str(_NAMES[name]))
    return text
