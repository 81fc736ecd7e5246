"""Kernels in Triton's CPU interpreter: the same ABI, written with numpy, on the host's clock.

The interpreter runs one program at a time and has no warps: a program is one slot. Time is the
host's monotonic clock, anchored to Unix time.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import triton.language as tl

from ikp.backends.triton import _structure as structure
from ikp.backends.triton import foreign
from ikp.backends.triton._interpreted_slot import Program
from ikp.core import abi
from ikp.core.abi import Kind, PayloadType
from ikp.core.segment import Spec
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
    not_a_payload,
    not_a_region,
)
from ikp.verbs.inline_ptx import counter

_interpreter = foreign.running()


class Context(tuple[OpenRange, ...]):
    """The open ranges of the functional verbs, innermost last; a token is a context of one."""

    __slots__ = ()


class _Interpreted:
    """The ``Dsl`` of the program that the interpreter runs now."""

    _running: Program | None = None
    _told: frozenset[str] = frozenset()  # what was told of this launch

    def init(self, prof: DslValue) -> None:
        """Open the slot of this program."""
        if self._running is not None and self._running.identity is _interpreter.grid_idx:
            raise init_twice()
        self._running = Program(prof)
        if not any(self._running.identity):  # the first of a launch
            self._told = frozenset()

    def recording(self, verb: str) -> bool:
        """Return whether this program records."""
        return self._program(verb).capacity > 0

    def spec(self) -> Spec:
        """Return how this program records."""
        return self._program("init").spec

    def region(self, value: DslValue, verb: str) -> Region:
        """Accept anything that is a string or an integer."""
        value = self.plain(value)
        if isinstance(value, str) and structure.formats_run_time_value():
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
        """Refuse what Triton refuses, though Python can do it."""
        if verb == "range":
            if structure.returns_from_with():
                raise KernelError(
                    "a compiled kernel can't return out of `with ikp.range(...)`: Triton says "
                    "'Cannot have `return` statements inside `with` statements'. Write "
                    "ctx = ikp.start(ctx, name), and ctx = ikp.end(ctx, name) before the return."
                )
            return
        here = structure.standing()
        for each in ranges[-1:] if verb == "end" else ranges:
            start = each.start
            if start.at.level != here.level if verb == "end" else start.opened_again(here):
                raise KernelError(
                    f"ikp.{verb} at {here.place} gets {describe_context(ranges)}: "
                    f"{each.region!r} was opened at {start.at.place}, in another iteration or "
                    "branch."
                )

    def open(self, region: object, payload: object, given: Payload) -> OpenRange:  # noqa: ARG002
        """Read the clock."""
        region = self.plain(region)
        start = _Start(time.perf_counter_ns())
        start.at = structure.standing()
        start.dropped = partial(self._tell, _interpreter.grid_idx, repr(region), start.at.place)
        return OpenRange(region, start, self.plain(payload))

    def token(self, region: object, payload: object, given: Payload, *, opened: bool) -> OpenRange:
        """Read the clock, which the token of no range does not use."""
        make = self.open if opened else self.unrecorded
        return replace(make(region, payload, given), opened=int(opened))

    def unrecorded(self, region: object, payload: object, given: Payload) -> OpenRange:
        """Return the same, though nobody will read its start."""
        made = self.open(region, payload, given)
        made.start.dropped = None
        return made

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

    def context(self, ranges: tuple[OpenRange, ...]) -> Context:
        """Return a plain tuple."""
        return Context(ranges)

    def ranges(self, ctx: object) -> tuple[OpenRange, ...] | None:
        """Return the open ranges of a context; None if it isn't one."""
        return ctx if isinstance(ctx, Context) else None

    def plain(self, value: DslValue) -> DslValue:
        """Return a Python or numpy scalar for what the interpreter wraps."""
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

    def _tell(self, program: DslValue, region: str, place: str) -> None:
        if program is not _interpreter.grid_idx or not structure.running():
            return  # it raised, and what it left behind is dropped later
        text = never_closed(region, place)
        if text not in self._told:  # by another program of the launch
            self._told |= {text}
            warnings.warn(text, IkpWarning, stacklevel=2)

    def _program(self, verb: str) -> Program:
        program = self._running
        if program is None or program.identity is not _interpreter.grid_idx:
            raise no_init(verb)
        return program


INTERPRETED = _Interpreted()
"""One for the process: the interpreter runs one program at a time."""


class _Start(int):
    """A start word: where it was read, and whom to tell when it is dropped unrecorded.

    Python drops a kernel's variables when it returns, and a token's when another takes its place.
    A kernel that raised has more to tell than that its ranges are open.
    """

    at = structure.Standing()
    dropped: Callable[[], None] | None = None

    def opened_again(self, here: structure.Standing) -> bool:
        """Return whether a later round of a loop, in which the range is open, opens it there."""
        return here == self.at and structure.loops(here.level) and not structure.copied()

    def __del__(self) -> None:
        if self.dropped is not None:
            self.dropped()


def _number(value: DslValue, verb: str) -> DslValue:
    """Return numpy's scalars as Python's; as in compiled kernels, 64-bit values don't fit."""
    if isinstance(value, (np.integer, np.floating)) and value.dtype.itemsize > 4:
        narrow = "float32" if isinstance(value, np.floating) else "int32"
        raise KernelError(
            f"the payload of ikp.{verb} has type {value.dtype}, which does not fit in 32 bits: "
            f"convert it, for example with x.to(tl.{narrow})."
        )
    return value.item() if isinstance(value, np.generic) else value
