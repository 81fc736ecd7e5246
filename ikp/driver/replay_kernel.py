"""``ReplayKernel``: the last node of a captured graph, which moves records to a log at each replay.

A graph's nodes keep their arguments, so each replay records into the same segments. This node
appends what its replay has recorded to a log: headers, and as many records as were made. A warp
takes 32 slots of one segment at a time, and reserves room for them by one atomic addition. Where no
log is set, the node does nothing: the host switches recording by one word of the device's memory.
"""

from __future__ import annotations

import ctypes
from typing import Final

from ikp.core import abi
from ikp.core.abi import ClockKind, Option, OverflowMode, SlotState
from ikp.driver import cuda

CONTROL: Final = {"log": 0, "room": 8, "replays": 16, "most": 20, "done": 24, "graph": 28}
"""Offsets in a graph's control block: the log's address, 0 for none; the bytes of its data; replays
since the log was set; how many of them are kept; warps of this replay that are done; the graph's
number."""
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

_WARP: Final = 32
_MOST_WARPS: Final = 1024
_WORDS: Final = abi.field_offsets(abi.LAUNCH_HEADER)
_SLOT: Final = abi.field_offsets(abi.SLOT_HEADER)
_DENSE: Final = abi.field_offsets(abi.DENSE_HEADER)
_NAMES: Final = {
    "log": CONTROL["log"],
    "room": CONTROL["room"],
    "replays": CONTROL["replays"],
    "most": CONTROL["most"],
    "done": CONTROL["done"],
    "graph": CONTROL["graph"],
    "segments": CONTROL_BYTES,
    "data": LOG_HEADER_BYTES,
    "second": LOG_HEADER_BYTES + UNIT,
    "behind": LOG_HEADER_BYTES + CHUNK_HEADER_BYTES,
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
    "dense_attempted": _DENSE["attempted"],
    "dense_finish": _DENSE["finish_ns"],
    "attempted": _SLOT["attempted"],
    "state": _SLOT["state"],
    **{f"at_{name}": at for name, at in _WORDS.items()},
}

_RESERVE: Final = """mov.u64 at, 0;
setp.eq.u32 q, lane, 0;
@q atom.global.add.u64 at, [log], bytes;
mov.b64 {low, high}, at;
shfl.sync.idx.b32 low, low, 0, 31, -1;
shfl.sync.idx.b32 high, high, 0, 31, -1;
mov.b64 at, {low, high};
add.u64 a, at, bytes;
setp.gt.u64 p, a, room;
"""
"""Reserves ``bytes`` of the log at ``at``, by one lane for its warp; ``p``: there is no room."""

# By the first line the hook library knows the module as ikp's own.
# All branches are uniform in a warp.
_CODE: Final = (
    """//ikp
.version 7.0
.target sm_70
.address_size 64
.visible .entry ikp_replay(.param .u64 given)
{
.reg .pred p, q, rows, active, ours;
.reg .u64 control, log, room, segment, first, behind, row, at, bytes, from, to, a, b;
.reg .u32 lane, chunk, number, replay, most, graph, x, y, z, warps, size, clock, mode, launched;
.reg .u32 options, chosen, begin, step, count, together, margin, blocks, slots, items, t, w, low;
.reg .u32 high, header, wide, capacity, pitch, item, start, made, state, units, upto, before, total;
.reg .u32 here, unit, j, i, m, g, v0, v1, v2, v3;
ld.param.u64 control, [given];
mov.u32 lane, %tid.x;
mov.u32 chunk, %ctaid.x;
mov.u32 number, %ctaid.y;
mul.wide.u32 a, number, 8;
add.u64 a, control, a;
ld.global.u64 segment, [a+@segments];
ld.volatile.global.u64 log, [control+@log];
ld.volatile.global.u64 room, [control+@room];
ld.volatile.global.u32 replay, [control+@replays];
ld.volatile.global.u32 most, [control+@most];
ld.global.u32 graph, [control+@graph];
setp.eq.u64 p, log, 0;
@p bra DONE;
setp.ge.u32 p, replay, most;
@p bra DONE;
ld.global.u32 launched, [segment+@at_launches];
ld.global.u32 x, [segment+@at_grid_x];
ld.global.u32 y, [segment+@at_grid_y];
ld.global.u32 z, [segment+@at_grid_z];
ld.global.u32 warps, [segment+@at_warps_per_block];
ld.global.u32 size, [segment+@at_slot_bytes];
ld.global.u32 clock, [segment+@at_clock];
ld.global.u32 mode, [segment+@at_overflow];
ld.global.u32 options, [segment+@at_options];
ld.global.u32 chosen, [segment+@at_warps];
ld.global.u32 begin, [segment+@at_first_block];
ld.global.u32 step, [segment+@at_block_step];
ld.global.u32 count, [segment+@at_block_count];
ld.global.u32 together, [segment+@at_together];
ld.global.u32 margin, [segment+@at_margin];
setp.eq.u32 p, launched, 0;
@p bra DONE;

setp.ne.u32 p, chunk, 0;
@p bra LAYOUT;
mov.u64 bytes, @first_bytes;
"""
    + _RESERVE
    + """@p bra LAYOUT;
add.u64 to, log, at;
@q st.global.v4.u32 [to+@data], {graph, replay, number, @head};
mov.u32 t, 0;
mov.u32 w, @launch_units;
@q st.global.v4.u32 [to+@second], {t, w, t, t};
mul.wide.u32 a, lane, 16;
add.u64 from, segment, a;
add.u64 to, to, a;
setp.lt.u32 q, lane, @launch_units;
@q ld.global.v4.u32 {v0, v1, v2, v3}, [from];
@q st.global.v4.u32 [to+@behind], {v0, v1, v2, v3};

LAYOUT:
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
@p bra DONE;
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
@p bra DONE;
sub.u32 t, size, t;
setp.ge.u32 q, clock, @wide;
selp.u32 wide, 2, 1, q;
mul.lo.u32 w, wide, 16;
div.u32 capacity, t, w;
setp.ge.u32 q, mode, @wrap;
setp.lt.u32 p, capacity, 1;
@p bra DONE;
bfind.u32 t, capacity;
mov.u32 w, 1;
shl.b32 w, w, t;
selp.u32 capacity, w, capacity, q;
selp.u32 t, 2, 1, q;
setp.lt.u32 p, capacity, t;
@p bra DONE;
setp.eq.and.u32 p, together, 0, rows;
@p bra DONE;
add.u64 first, segment, @launch_bytes;
mul.wide.u32 behind, slots, size;
add.u64 behind, first, behind;
mul.wide.u32 row, slots, @dense_header;
add.u64 row, first, row;

SOME:
mul.lo.u32 start, chunk, 32;
setp.ge.u32 p, start, items;
@p bra DONE;
add.u32 item, start, lane;
setp.lt.u32 active, item, items;
setp.lt.u32 ours, item, slots;
mul.wide.u32 a, item, pitch;
add.u64 a, a, first;
sub.u32 t, item, slots;
mul.wide.u32 b, t, @dense_header;
add.u64 b, b, behind;
selp.u64 from, a, b, ours;
mov.u32 made, 0;
mov.u32 state, 0;
mov.u64 b, 0;
and.pred p, active, rows;
@p ld.global.u32 made, [from+@dense_attempted];
@p ld.global.u64 b, [from+@dense_finish];
not.pred p, rows;
and.pred p, p, active;
@p ld.global.u32 made, [from+@attempted];
@p ld.global.u32 state, [from+@state];
setp.ne.u64 p, b, 0;
setp.eq.or.u32 p, state, @finished, p;
and.pred p, p, ours;
min.u32 made, made, capacity;
selp.u32 made, made, 0, p;
mul.lo.u32 units, made, wide;
mov.u32 upto, units;
"""
)
_SCAN: Final = """shfl.sync.up.b32 t|p, upto, {d}, 0, -1;
@p add.u32 upto, upto, t;
"""
_MOVE: Final = (
    """sub.u32 before, upto, units;
shfl.sync.idx.b32 total, upto, 31, 31, -1;
sub.u32 t, items, start;
min.u32 t, t, 32;
mul.lo.u32 w, t, header;
mul.wide.u32 bytes, total, 16;
cvt.u64.u32 b, w;
add.u64 bytes, bytes, b;
add.u64 bytes, bytes, @chunk_bytes;
"""
    + _RESERVE
    + """@p bra NEXT;
add.u64 to, log, at;
@q st.global.v4.u32 [to+@data], {graph, replay, number, start};
mov.u32 v0, 0;
@q st.global.v4.u32 [to+@second], {t, total, header, v0};
add.u64 to, to, @behind;
mul.wide.u32 a, lane, header;
add.u64 a, to, a;
add.u64 to, to, b;
"""
)
_HEADER: Final = """@active ld.global.v4.u32 {{v0, v1, v2, v3}}, [from+{at}];
@active st.global.v4.u32 [a+{at}], {{v0, v1, v2, v3}};
"""
_REST: Final = """@rows bra RECORDS;
"""
_RECORDS: Final = """RECORDS:
mov.u32 here, 0;
MOVE:
setp.ge.u32 p, here, total;
@p bra MOVED;
add.u32 unit, here, lane;
mov.u32 j, 0;
"""
_SEARCH: Final = """add.u32 t, j, {less};
shfl.sync.idx.b32 w, upto, t, 31, -1;
setp.le.u32 p, w, unit;
@p add.u32 j, j, {s};
"""
_ENDING: Final = """shfl.sync.idx.b32 w, before, j, 31, -1;
setp.lt.u32 q, unit, total;
sub.u32 m, unit, w;
add.u32 i, start, j;
mul.wide.u32 a, i, pitch;
add.u64 a, a, first;
cvt.u64.u32 b, header;
add.u64 a, a, b;
mul.wide.u32 b, m, 16;
add.u64 a, a, b;
max.u32 t, together, 1;
div.u32 g, i, t;
mul.lo.u32 w, g, t;
sub.u32 w, i, w;
mul.lo.u32 m, m, t;
add.u32 m, m, w;
sub.u32 w, size, header;
mul.lo.u32 w, w, t;
mul.wide.u32 b, g, w;
add.u64 b, b, row;
cvt.u64.u32 bytes, m;
shl.b64 bytes, bytes, 4;
add.u64 b, b, bytes;
selp.u64 a, b, a, rows;
mul.wide.u32 b, unit, 16;
add.u64 b, b, to;
@q ld.global.v4.u32 {v0, v1, v2, v3}, [a];
@q st.global.v4.u32 [b], {v0, v1, v2, v3};
add.u32 here, here, 32;
bra MOVE;
MOVED:
bar.warp.sync -1;
mov.u32 t, 0;
@active st.global.v4.u32 [from], {t, t, t, t};
@active st.global.v4.u32 [from+16], {t, t, t, t};
@rows bra NEXT;
@active st.global.v4.u32 [from+32], {t, t, t, t};
@active st.global.v4.u32 [from+48], {t, t, t, t};
NEXT:
mov.u32 t, %nctaid.x;
add.u32 chunk, chunk, t;
bra SOME;

DONE:
bar.warp.sync -1;
mov.u32 x, %nctaid.x;
mov.u32 y, %nctaid.y;
mul.lo.u32 w, x, y;
sub.u32 w, w, 1;
mov.u32 t, 0;
setp.eq.u32 q, lane, 0;
@q atom.global.inc.u32 t, [control+@done], w;
shfl.sync.idx.b32 t, t, 0, 31, -1;
setp.ne.u32 p, t, w;
@p bra OUT;
setp.ne.and.u64 q, log, 0, q;
add.u32 replay, replay, 1;
@q st.global.u32 [control+@replays], replay;
mov.u32 i, 0;
mov.u32 t, 0;
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


def code() -> str:
    """Return the kernel in PTX."""
    halves = (1, 2, 4, 8, 16)
    text = (
        _CODE
        + "".join(_SCAN.format(d=each) for each in halves)
        + _MOVE
        + "".join(_HEADER.format(at=each) for each in (0, 16))
        + _REST
        + "".join(_HEADER.format(at=each) for each in (32, 48))
        + _RECORDS
        + "".join(_SEARCH.format(s=each, less=each - 1) for each in halves[::-1])
        + _ENDING
    )
    for name in sorted(_NAMES, key=len, reverse=True):
        text = text.replace(f"@{name}", str(_NAMES[name]))
    return text


class ReplayKernel:
    """The kernel, loaded in the current context: the primary one of a device.

    Raises:
        PatchError: the driver refuses.
    """

    def __init__(self) -> None:
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        load = "load the kernel that keeps replays"
        cuda.call("cuModuleLoadData", ctypes.byref(module), code().encode(), to=load)
        cuda.call(
            "cuModuleGetFunction", ctypes.byref(self._function), module, b"ikp_replay", to=load
        )

    def launch(self, control: int, segments: int, stream: int) -> None:
        """Launch it behind all that a stream has, or captures.

        Args:
            control: the address of the graph's control block.
            segments: how many addresses lie behind that.
            stream: the driver's handle.

        Raises:
            PatchError: the driver refuses.
        """
        given = ctypes.c_uint64(control)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(given))
        wide = max(1, _MOST_WARPS // segments)
        cuda.call(
            "cuLaunchKernel",
            *(self._function, wide, segments, 1, _WARP, 1, 1, 0, ctypes.c_void_p(stream)),
            *(parameters, None),
            to="launch the kernel that keeps replays",
        )
