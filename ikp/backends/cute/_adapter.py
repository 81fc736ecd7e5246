"""The adapter of the CuTe kernel that is being traced: the verbs become inline PTX.

The PTX is the same as in Triton. ``init`` declares the cursor's registers, and other verbs use them
by name, so the DSL's loops and branches carry no values for them.
"""

from __future__ import annotations

import ast
from dataclasses import replace

import cutlass
from cutlass import Float32, Int32, Int64, Uint32

from ikp.backends.argument import Argument
from ikp.backends.cute import _checks as calls
from ikp.backends.cute import _foreign as foreign
from ikp.backends.cute import _state as state
from ikp.backends.cute._state import CuteContext, context, kind_of
from ikp.core import abi
from ikp.core.abi import Language, PayloadType
from ikp.core.segment import Spec
from ikp.errors import KernelError
from ikp.targets import ptx, ptx_slot
from ikp.targets.ptx_totals import Counter
from ikp.verbs.caller import calling, formatted, place
from ikp.verbs.dsl import (
    DslValue,
    OpenRange,
    Payload,
    Region,
    Unrecorded,
    constant_payload,
    constant_region,
    formatted_at_run_time,
    not_a_buffer,
    not_a_payload,
    not_a_region,
    signed,
)
from ikp.verbs.inline_ptx import PtxRecorder


class Traced(PtxRecorder):
    """The ``Dsl`` of the kernel that CuTe traces now."""

    def __init__(self, verb: str) -> None:
        self._kernel = state.kernel(verb)

    def init(self, prof: DslValue) -> None:
        """Declare the cursor and write the headers; remember how this kernel records."""
        calls.watch()
        if prof is None:
            state.begin(self._kernel, None)
            return
        if not isinstance(prof, Argument):
            raise not_a_buffer(type(prof).__name__)
        spec = Spec.parse(prof.spec_text)
        recording = state.CuteRecording(spec)
        state.begin(self._kernel, recording)
        word = self._emit(ptx_slot.init(spec, Language.CUTE), [prof.data, prof.slots_bytes])
        recording.init = word.ir_value().owner

    def region(self, value: DslValue, verb: str) -> Region:
        """Accept a constant, or an integer of at most 32 bits."""
        if isinstance(value, cutlass.Integer):
            return Region(None, runtime=value)
        known = constant_region(value)
        if known is None:
            raise not_a_region(verb, repr(value))
        if "?" in known.name and _formats_run_time_value():
            raise formatted_at_run_time(verb, known.name)
        return known

    def payload(self, value: DslValue, verb: str) -> Payload:
        """Accept a constant, or a number of at most 32 bits."""
        if isinstance(value, cutlass.Numeric):
            return Payload(_type_of(value, verb), value)
        known = constant_payload(value, verb)
        if known is None:
            raise not_a_payload(verb, repr(value), "Take one element of a tensor: x[i].")
        return known

    def is_condition(self, value: DslValue) -> bool:
        """Accept a boolean or an integer."""
        return isinstance(value, (int, cutlass.Integer))

    def is_index(self, value: DslValue) -> bool:
        """Accept an integer of at most 32 bits."""
        if isinstance(value, int):
            return 0 <= value < 1 << 31
        return isinstance(value, cutlass.Integer) and type(value).width <= Int32.width

    def condition(self, value: DslValue) -> DslValue:
        """Return an Int32."""
        return Int32(cutlass.Boolean(value))

    def index(self, value: DslValue) -> DslValue:
        """Return a constant as it is, anything else as Int32."""
        return value if isinstance(value, int) else Int32(value)

    def both(self, one: DslValue, other: DslValue) -> DslValue:
        """Return an Int32."""
        return one & other

    def open(self, region: object, payload: object, given: Payload) -> OpenRange:
        """Read the clock."""
        return self._range(region, payload, given, self._read_clock(self.region(region, "start")))

    def token(self, region: object, payload: object, given: Payload, *, opened: bool) -> OpenRange:
        """Read the clock for a range; the start word of none is 0."""
        wide = self.spec().clock.bits > abi.WORD_BITS
        zero = Int64(0) if wide else Int32(0)
        known = self.region(region, "start")
        start = self._read_clock(known) if opened else zero
        return replace(self._range(region, payload, given, start), opened=Int32(int(opened)))

    def unrecorded(self, region: object, payload: object, given: Payload) -> OpenRange:
        """Return a range of constants, with types in the place of run-time values."""
        made = self._range(region, payload, given, None)
        parts = (made.region, made.payload)
        kinds = [Unrecorded(kind_of(p)) if isinstance(p, cutlass.Numeric) else p for p in parts]
        return OpenRange(kinds[0], None, kinds[1])

    def _read_clock(self, region: Region) -> DslValue:
        word = super()._read_clock(region)
        if recording := state.current(self._kernel, "start"):
            recording.places[hash(word.ir_value().owner)] = place()
        return word

    def _range(self, region: object, payload: object, given: Payload, start: DslValue) -> OpenRange:
        """Return an open range, in which a constant payload is a run-time value.

        So a token opened with ``0`` before a loop has the type of one opened with its variable.
        """
        if given.type is not PayloadType.NONE and not isinstance(payload, cutlass.Numeric):
            payload = Float32(payload) if isinstance(payload, float) else Int32(payload)
        return OpenRange(region, start, payload)

    def context(self, ranges: tuple[OpenRange, ...]) -> CuteContext:
        """Return a value that CuTe carries."""
        return context(ranges)

    def ranges(self, ctx: object) -> tuple[OpenRange, ...] | None:
        """Return the open ranges of a context; None if it isn't one."""
        return ctx.ranges if isinstance(ctx, CuteContext) else None

    def plain(self, value: DslValue) -> DslValue:
        """CuTe wraps no constants."""
        return value

    def _recording(self, verb: str) -> Spec | None:
        recording = state.current(self._kernel, verb)
        return recording.spec if recording else None

    def _counters(self) -> tuple[Counter, ...]:
        recording = state.current(self._kernel, "finish")
        return tuple(sorted(recording.counters)) if recording else ()

    def _counting(self, counter: Counter) -> None:
        # ikp has no pass between CuTe's PTX and its cubin: init's own text has to declare counters
        # that later verbs use. finish writes those traced before it, in the warps that run it.
        recording = state.current(self._kernel, "end")
        if recording is None or counter in recording.counters:
            return
        recording.counters.add(counter)
        asm = ptx_slot.init(recording.spec, Language.CUTE, self._counters())
        foreign.rewrite(recording.init, asm.code)

    def _emit(self, asm: ptx.Asm, args: list[DslValue]) -> DslValue:
        word_type = Int64 if asm.bits[0] == Int64.width else Int32
        operands = [arg.ir_value() for arg in args]
        word = foreign.assembly(asm.code, asm.constraints, operands, word_type.mlir_type)
        return word_type(word)

    def _value(self, value: DslValue) -> DslValue:
        return Int32(value)

    def _runtime_tag(self, base: int, number: DslValue) -> DslValue:
        return Int32(number) & Int32(abi.MAX_USER_REGION) | Int32(signed(base))

    def _word(self, payload: Payload) -> DslValue:
        if isinstance(payload.value, int):
            return Int32(signed(payload.value))
        if payload.type is PayloadType.F32:
            return Int32(foreign.bits(Float32(payload.value).ir_value()))
        return (Int32 if payload.type is PayloadType.I32 else Uint32)(payload.value)


def _formats_run_time_value() -> bool:
    """Return whether the verb is given an f-string of a run-time value, which prints as "?"."""
    frame = calling()
    if frame is None:
        return False
    names = (
        frame.f_locals.get(node.id)
        for value in formatted(frame.f_code.co_filename, frame.f_lineno)
        for node in ast.walk(value)
        if isinstance(node, ast.Name)
    )
    return any(isinstance(each, cutlass.Numeric) for each in names)


def _type_of(value: DslValue, verb: str) -> PayloadType:
    dtype = type(value)
    if dtype.width > 32:
        narrow = "Float32" if dtype.is_float else "Int32"
        raise KernelError(
            f"the payload of ikp.{verb} has type {dtype.__name__}, which does not fit in 32 bits: "
            f"convert it, for example with cutlass.{narrow}(x)."
        )
    if dtype.is_float:
        return PayloadType.F32
    return PayloadType.I32 if getattr(dtype, "signed", False) else PayloadType.U32
