"""The adapter for Triton's CPU interpreter: headers and records of the same ABI, by numpy.

The interpreter runs one program at a time and has no warps: a program is one slot. Its counts are
exact after each record, since a program may end anywhere. Time is the host's monotonic clock,
anchored to Unix time.
"""

from __future__ import annotations

import ctypes
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import triton.language as tl

from ikp.backends.triton import foreign
from ikp.backends.triton._structure import Standing, running
from ikp.core import abi, launch_fields
from ikp.core.abi import ClockKind, Kind, Language, Option, OverflowMode, PayloadType, SlotState
from ikp.core.launch_fields import Origin
from ikp.core.segment import EVERYTHING, Selection, Spec
from ikp.errors import IkpWarning, KernelError
from ikp.verbs.dsl import (
    DslValue,
    OpenRange,
    Payload,
    Place,
    Region,
    constant_payload,
    constant_region,
    describe_context,
    formatted_at_run_time,
    init_twice,
    never_closed,
    no_init,
    not_a_buffer,
    not_a_payload,
    not_a_region,
)
from ikp.verbs.inline_ptx import counter

_interpreter = foreign.running()


class InterpretedContext(tuple[OpenRange, ...]):
    """The open ranges of the functional verbs, innermost last; a token is a context of one."""

    __slots__ = ()


class StartWord(int):
    """A start word, with the verb that read it, and a warning for when it is dropped unrecorded.

    Python drops a kernel's variables when it returns, and a token's when another takes its place.
    A kernel that raised has an error of its own to report, and no warning of open ranges.
    """

    at = Standing()
    dropped: Callable[[], None] | None = None

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.dropped is not None and not ending():
            self.dropped()


class _Now:
    """The program that the interpreter runs: one at a time."""

    program: Program | None = None
    warned: frozenset[str] = frozenset()  # the warnings of its launch


class Interpreted:
    """The ``Dsl`` of the verb at ``here`` in the program that the interpreter runs now."""

    def __init__(self, here: Standing) -> None:
        self._here = here

    def init(self, prof: DslValue) -> None:
        """Open the slot of this program."""
        if _Now.program is not None and _Now.program.identity is _interpreter.grid_idx:
            raise init_twice()
        _Now.program = Program(prof)
        if not any(_Now.program.identity):  # the first of a launch
            _Now.warned = frozenset()

    def recording(self, verb: str) -> bool:
        """Return whether this program records."""
        return self._program(verb).capacity > 0

    def spec(self) -> Spec:
        """Return the spec by which this program records."""
        return self._program("init").spec

    def region(self, value: DslValue, verb: str) -> Region:
        """Accept anything that is a string or an integer."""
        value = self.plain(value)
        if isinstance(value, str) and self._here.formats:
            raise formatted_at_run_time(verb, value)
        at_run_time = isinstance(value, np.integer)  # where a compiled kernel has a tensor
        known = constant_region(int(value) if at_run_time else value)
        if known is None:
            raise not_a_region(verb, repr(value))
        return replace(known, runtime=value) if at_run_time else known

    def payload(self, value: DslValue, verb: str) -> Payload:
        """Accept a number of at most 32 bits."""
        value = self.plain(value)
        known = constant_payload(_number(value, verb), verb)
        if known is None:
            remedy = "Reduce a block to a scalar first, for example with tl.max."
            raise not_a_payload(verb, repr(value), remedy)
        if isinstance(value, (np.unsignedinteger, np.bool_)):
            return Payload(PayloadType.U32, known.value)
        return known

    def is_condition(self, value: DslValue) -> bool:
        """Accept a scalar boolean or integer."""
        return isinstance(value, (int, np.bool_, np.integer))

    def is_index(self, value: DslValue) -> bool:
        """Accept an integer of at most 32 bits."""
        return isinstance(value, (int, np.integer)) and 0 <= int(value) < 1 << 31

    def condition(self, value: DslValue) -> int:
        """Return 0 or 1."""
        return int(bool(value))

    def index(self, value: DslValue) -> int:
        """Return a Python integer."""
        return int(value)

    def both(self, one: int, other: int) -> int:
        """Return 0 or 1."""
        return one & other

    def check_source(self, verb: str, ranges: tuple[OpenRange, ...]) -> None:
        """Refuse control flow around a verb that Triton's compiler refuses, and Python does not."""
        here = self._here
        if verb == "range" and here.returns:
            raise KernelError(
                "a compiled kernel can't return out of `with ikp.range(...)`: Triton says "
                "'Cannot have `return` statements inside `with` statements'. Write "
                "ctx = ikp.start(ctx, name), and ctx = ikp.end(ctx, name) before the return."
            )
        for each in ranges[-1:] if verb == "end" else ranges:
            start = each.start
            if start.at.level != here.level if verb == "end" else here.again(start.at):
                raise KernelError(
                    f"ikp.{verb} at {here.place} gets {describe_context(ranges)}: "
                    f"{each.region!r} was opened at {start.at.place}, in another iteration or "
                    "branch."
                )

    def open(self, region: object, payload: object, given: Payload) -> OpenRange:  # noqa: ARG002
        """Read the clock."""
        region = self.plain(region)
        start = StartWord(time.perf_counter_ns())
        start.at = self._here
        if (known := self.region(region, "start")).number is not None:
            self._program("start").publish(known.number, start)
        start.dropped = partial(_warn, _interpreter.grid_idx, repr(region), start.at.place)
        return OpenRange(region, start, self.plain(payload))

    def token(self, region: object, payload: object, given: Payload, *, opened: bool) -> OpenRange:
        """Read the clock, which the token of no range does not use."""
        make = self.open if opened else self.unrecorded
        return replace(make(region, payload, given), opened=int(opened))

    def unrecorded(self, region: object, payload: object, given: Payload) -> OpenRange:  # noqa: ARG002
        """Return a range without a warning when it is dropped: no record uses its start."""
        start = StartWord(0)
        start.at = self._here
        return OpenRange(self.plain(region), start, self.plain(payload))

    def store_range(self, region: Region, start: DslValue, payload: Payload, place: Place) -> None:
        """Store one range record, or add the range to its region's total."""
        start.dropped = None
        self._store(Kind.RANGE, region, start, time.perf_counter_ns(), payload, place)

    def store_instant(self, region: Region, payload: Payload, place: Place) -> None:
        """Store one instant record, or add the instant to its region's total."""
        now = time.perf_counter_ns()
        self._store(Kind.INSTANT, region, now, now, payload, place)

    def store_role(self, region: Region) -> None:
        """Write the program's role to its slot's header."""
        self._program("role").set_role(region.number or 0)

    def finish(self) -> None:
        """Write the counts and the second clock anchor."""
        self._program("finish").finish()

    def context(self, ranges: tuple[OpenRange, ...]) -> InterpretedContext:
        """Return a plain tuple."""
        return InterpretedContext(ranges)

    def ranges(self, ctx: object) -> tuple[OpenRange, ...] | None:
        """Return the open ranges of a context; None if it isn't one."""
        return ctx if isinstance(ctx, InterpretedContext) else None

    def plain(self, value: DslValue) -> DslValue:
        """Return the Python or numpy scalar that the interpreter has wrapped."""
        if isinstance(value, tl.constexpr):
            return value.value
        if isinstance(value, tl.tensor) and value.handle.data.size == 1:
            return value.handle.data.reshape(-1)[0]
        return value

    def _store(
        self, kind: Kind, region: Region, start: int, end: int, payload: Payload, place: Place
    ) -> None:
        if place.where is not None and not place.where:
            return
        program = self._program("end")
        if program.spec.totals:
            program.add(counter(region, kind).tag, end - start & 0xFFFFFFFF)
            return
        kind = kind if place.index is None else abi.PLACED[kind]
        tag = abi.tag(kind, payload.type, region.number or 0)
        program.store(tag, (start, end), payload.value, place.index)

    def _program(self, verb: str) -> Program:
        program = _Now.program
        if program is None or program.identity is not _interpreter.grid_idx:
            raise no_init(verb)
        return program


def _warn(program: DslValue, region: str, place: str) -> None:
    """Warn of a range that a program never closed, once for each launch."""
    if program is not _interpreter.grid_idx or not running():
        return  # the program raised, and its variables are dropped later
    text = never_closed(region, place)
    if text not in _Now.warned:  # by another program of the launch
        _Now.warned |= {text}
        try:
            warnings.warn(text, IkpWarning, stacklevel=2)
        except IkpWarning as error:  # warnings are errors here, and Python drops this one
            if sys.stderr is not None:  # a program may have closed it
                sys.stderr.write(f"ikp: warning: {error}\n")


def _number(value: DslValue, verb: str) -> DslValue:
    """Return numpy's scalars as Python's; as in compiled kernels, 64-bit values don't fit."""
    if isinstance(value, (np.integer, np.floating)) and value.dtype.itemsize > 4:
        narrow = "float32" if isinstance(value, np.floating) else "int32"
        raise KernelError(
            f"the payload of ikp.{verb} has type {value.dtype}, which does not fit in 32 bits: "
            f"convert it, for example with x.to(tl.{narrow})."
        )
    return value.item() if isinstance(value, np.generic) else value


class Program:
    """The slot of one program."""

    def __init__(self, prof: DslValue) -> None:
        self.identity = _interpreter.grid_idx  # a fresh tuple for every program
        self.capacity = 0
        self.attempted = 0
        self.totals: dict[int, tuple[int, int, int]] = {}  # by tag: index, count, ticks
        if prof is not None:
            self._open(prof)

    def _open(self, prof: DslValue) -> None:
        try:
            address, size = int(prof[0].handle.data[0]), int(prof[1].handle.data[0])
            spec = Spec.parse(prof[2].value)
        except (TypeError, IndexError, AttributeError, ValueError) as error:
            raise not_a_buffer(type(prof).__name__) from error
        if not size:
            return
        grid, index = _interpreter.grid_dim, _interpreter.grid_idx
        raw = (ctypes.c_uint8 * (abi.LAUNCH_HEADER_BYTES + size)).from_address(address)
        self.memory = np.ctypeslib.as_array(raw)
        chosen = Selection.of(self._launch()[0]) if spec.select else EVERYTHING
        block = index[0] + grid[0] * (index[1] + grid[1] * index[2])
        blocks = chosen.count_blocks(grid[0] * grid[1] * grid[2])
        rank = chosen.rank(block) if len(chosen.chosen_warps(1)) else None
        slot_bytes = size // max(1, blocks) & -abi.ALIGNMENT
        # The host's clock, as wide as the spec's.
        clock = ClockKind.HOST64 if spec.clock.bits > abi.WORD_BITS else ClockKind.HOST
        enough = slot_bytes >= abi.min_slot_bytes(spec.overflow, clock)
        capacity = abi.slot_capacity(slot_bytes, spec.overflow, clock)
        if block == 0:
            self._write_launch(spec, clock, grid, slot_bytes)
        if rank is None or not enough:
            return
        self.spec, self.clock, self.capacity = spec, clock, capacity
        self.offset = abi.LAUNCH_HEADER_BYTES + rank * slot_bytes
        header = self._header()
        header[:] = 0
        header["state"] = SlotState.RUNNING
        header["init_ns"], header["init_clock"] = _anchor()
        self.finish()

    def _write_launch(
        self, spec: Spec, clock: ClockKind, grid: tuple[int, int, int], slot_bytes: int
    ) -> None:
        given: dict[str, int] = {
            **launch_fields.sizes(grid, (1, 1, 1)),
            Origin.WARPS: 1,
            Origin.SLOT_BYTES: slot_bytes,
            "clock": clock,
            "overflow": spec.overflow,
            "language": Language.TRITON,
            "options": Option.SELECTED * spec.select + Option.TOTALS * spec.totals,
        }
        launch_fields.write(self._launch(), given)

    def _launch(self) -> DslValue:
        return self.memory[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)

    def set_role(self, number: int) -> None:
        """Write the role's region id."""
        self._header()["role"] = number

    def _header(self) -> DslValue:
        return self.memory[self.offset : self.offset + abi.SLOT_HEADER_BYTES].view(abi.SLOT_HEADER)

    def publish(self, region: int, start: int) -> None:
        """Have the header of a stream's slot say which range is open, until a record is stored."""
        if self.capacity and self.spec.overflow is OverflowMode.STREAM:
            header = self._header()
            header["open"] = abi.tag(Kind.RANGE, PayloadType.NONE, region)
            header["open_start"] = start & ((1 << self.clock.bits) - 1)
            header["state"] = SlotState.RUNNING

    def store(self, tag: int, times: tuple[int, int], payload: int, given: int | None) -> None:
        """Store one record if there is room, at the next index or a given one, and count it."""
        index = self.attempted if given is None else given
        self.attempted = max(self.attempted, index + 1)
        if self.spec.overflow.wraps:
            index %= self.capacity
        self._put(index, tag, times, payload)

    def add(self, tag: int, ticks: int) -> None:
        """Add one range or instant to a total, and write the total's record anew."""
        index, count, before = self.totals.get(tag, (len(self.totals), 0, 0))
        self.totals[tag] = index, count + 1, before + ticks
        self.attempted = len(self.totals)
        high, low = divmod(before + ticks, 1 << 32)
        self._put(index, tag, (low, high), count + 1)  # a total's words are those of a record

    def _put(self, index: int, tag: int, times: tuple[int, int], payload: int) -> None:
        if index < self.capacity:
            dtype = self.clock.record
            at = self.offset + abi.SLOT_HEADER_BYTES + index * dtype.itemsize
            record = self.memory[at : at + dtype.itemsize].view(dtype)
            record["tag"], record["payload"] = tag, payload
            record["start"], record["end"] = (one & ((1 << self.clock.bits) - 1) for one in times)
        self.finish()  # the program may end anywhere: keep its counts exact

    def finish(self) -> None:
        """Write the counts and the second anchor."""
        if self.capacity:
            header = self._header()
            header["finish_ns"], header["finish_clock"] = _anchor()
            header["attempted"], header["state"] = self.attempted, SlotState.FINISHED
            header["open"] = 0


def _anchor() -> tuple[int, int]:
    return time.time_ns(), time.perf_counter_ns()
