"""The binding of ``plain.c``, which decodes slots of plain records to columns faster than numpy.

The columns are those that numpy makes, to the last bit. ``plain.c`` says which records are plain;
numpy decodes all others, and all where there is neither a compiled library nor a C compiler.
"""

from __future__ import annotations

import ctypes
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ikp.compiling import CFile, CompileError
from ikp.core import abi
from ikp.core.abi import Rows
from ikp.core.decoding._records import ID_BITS, Codes, whole_lives
from ikp.core.decoding._times import SLACK
from ikp.core.decoding.launch_header import Ints
from ikp.core.decoding.slots import Columns, Used

if TYPE_CHECKING:
    from ikp.core.decoding._times import Timeline
    from ikp.core.decoding.clock import Axes

PLAIN: Final = CFile(
    Path(__file__).with_name("plain.c"),
    "libikp-plain.so",
    ("-shared", "-fPIC", "-O2", "-ffp-contract=off", "-fno-math-errno"),
)
"""Without contraction: a fused multiply-add, which rounds once, gives other bits."""
_SLOT: Final = np.dtype(
    [
        *(("records", "u8"), ("step", "i8"), ("count", "i8"), ("whole", abi.RECORD)),
        *(
            ("init", "i8"),
            ("since", "i8"),
            ("latest", "i8"),
            ("launch", "i8"),
            ("table", "u8"),
            ("offset", "f8"),
            ("side", "f8"),
        ),
        *(("end", "i8"), ("flags", "i8")),
    ]
)
_LAUNCH: Final = np.dtype(
    [("rate", "f8"), ("reach", "f8"), ("zero", "i8"), ("first", "i8"), ("past", "i8")]
)
_TURNED, _OUTSIDE = 1, 2
_MOST_THREADS: Final = 4
_WORTH: Final = 1 << 17
"""Fewest records for which a thread is started."""
_NEVER: Final = (1 << 63) - 1

_WORD: Final = 4
_ALL: Final = 1 << 40
"""More records than any slot has."""

_compiled: list[Any] = []
"""The function ``ikp_place``, or None where it can't be compiled; empty before the first use."""


def _function() -> Any:
    if not _compiled:
        try:
            library = ctypes.CDLL(str(PLAIN.library()))
        except (OSError, CompileError, RuntimeError):  # no compiler, no home: a matter of speed
            _compiled.append(None)
        else:
            library.ikp_place.argtypes = (*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)
            library.ikp_place.restype = ctypes.c_int64
            _compiled.append(library.ikp_place)
    return _compiled[0]


class PlainRows:
    """The slots of some launches and the columns of their events, as ``plain.c`` takes them."""

    def __init__(self, slots: Rows, launches: Rows, axes: Axes, columns: Columns) -> None:
        knot, value = axes.bends.knot, axes.bends.value
        with np.errstate(all="ignore"):  # from one launch to the next it means nothing
            slope = np.diff(value) / np.diff(knot)
        self._slots = slots
        self.beside = (slots["whole"]["tag"] > 0).astype(np.int64)
        self._held = (slots, launches, knot, value, slope, *columns.values())
        self._task = np.array([each.ctypes.data for each in self._held], np.uint64)
        self._place = _function()

    @classmethod
    def of(
        cls, used: Used, timeline: Timeline, kept: Ints, tables: Ints, columns: Columns
    ) -> PlainRows | None:
        """Return the slots as C takes them; None where none is plain, or C is not at hand.

        ``kept`` is by slot: its number of records, or -1 where these aren't plain. ``tables`` of
        names are by launch.
        """
        axes, mine = timeline.axes, slice(len(kept))  # of all warps, those that have slots
        if axes is None or used.summed or used.clock.bits > abi.WORD_BITS or not _function():
            return None
        slots, launches = np.zeros(len(kept), _SLOT), np.zeros(len(tables), _LAUNCH)
        row = timeline.row[mine]
        slots["records"], slots["step"] = _places(used, kept)
        slots["count"], slots["end"] = kept, timeline.end[mine]
        there, lives = whole_lives(used, slice(None))
        slots["whole"][there] = lives
        slots["init"] = slots["since"] = timeline.init_ticks[mine]
        slots["since"] -= axes.tick_zero[row]
        latest = np.where(timeline.finished, timeline.finish_ticks + SLACK, _NEVER)
        slots["latest"] = latest[mine]
        slots["launch"], slots["table"] = used.launch, tables[used.launch] << ID_BITS
        slots["offset"], slots["side"] = axes.offset[row], axes.bends.side[row]
        launches["rate"], launches["zero"] = axes.rate, axes.ns_zero
        launches["reach"] = axes.bends.reach
        launches["first"], launches["past"] = axes.bends.first, axes.bends.past
        return cls(slots, launches, axes, columns)

    def place(self, slots: slice, codes: Codes, row: int) -> int:
        """Decode slots into the rows from ``row`` on; return the row behind them.

        Return -1 where a record isn't plain, or of a region without a code: the slots are then for
        numpy.
        """
        known, first, past = codes.parts(), slots.start, slots.stop
        return int(self._place(self._task.ctypes.data, known.ctypes.data, first, past, row))

    def place_all(self, slots: slice, codes: Codes, row: int) -> int:
        """Decode many slots in threads; return -1, as ``place`` does, if any is for numpy."""
        count = self._slots["count"][slots]
        rows = row + np.append(0, np.cumsum(count + self.beside[slots]))
        threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)), int(rows[-1] - row) // _WORTH)
        if threads < 2 or count.min() < 0:
            return -1
        at = np.searchsorted(rows, np.linspace(row, rows[-1], threads + 1))
        ends = (slots.start + at).tolist()
        known, seen = codes.parts(), codes.seen  # held as long as threads read it
        task = self._task.ctypes.data, known.ctypes.data
        try:
            # Not above: where Python is ending, its import raises what starting a thread does.
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(threads) as pool:
                done = [*pool.map(partial(self._place, *task), ends, ends[1:], rows[at].tolist())]
        except RuntimeError:  # Python is ending: no thread can be started
            return -1
        del seen
        return -1 if min(done) < 0 else int(rows[-1])

    def add_to(self, timeline: Timeline, end: Ints) -> None:
        """Add the slots' flags to ``timeline``, and the ends of their last records to ``end``."""
        mine = slice(len(self._slots))
        timeline.turned[mine] |= (self._slots["flags"] & _TURNED) > 0
        timeline.outside[mine] |= (self._slots["flags"] & _OUTSIDE) > 0
        np.maximum(end, self._slots["end"], out=end)


def _places(used: Used, count: Ints) -> tuple[Ints, Ints]:
    """Return the address of the first record of each slot, and the stride between its records.

    The address is 0 where ``count`` is below 0, or where not all ``count`` records are on the host.
    """
    parts, launch = used.memories, used.launch
    slots = np.array([len(each.first) for each in parts])
    at = (np.cumsum(slots) - slots)[launch] + used.ids
    begin = np.array([each.raw.ctypes.data for each in parts])[launch]
    first = np.concatenate([each.first for each in parts])[at]
    counts = [each.first + _ALL if each.counts is None else each.counts for each in parts]
    step = np.array([each.step for each in parts])[launch]
    units = np.array([each.raw.size // abi.ALIGNMENT for each in parts])[launch]
    there = (count >= 0) & (count <= np.concatenate(counts)[at]) & (begin % _WORD == 0)
    there &= first + count * step - step < units
    return np.where(there, begin + first * abi.ALIGNMENT, 0), step
