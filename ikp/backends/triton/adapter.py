"""Adapters of compiled Triton and Gluon kernels: verbs become PTX, or the assembly of a plugin.

``compiling`` chooses one by the GPU that Triton compiles for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

import triton.language as tl

from ikp.backends.triton import _state as state
from ikp.backends.triton import gpu_targets
from ikp.backends.triton._context import Context, context
from ikp.backends.triton.foreign import TRITON, VERBS
from ikp.backends.triton.gpu_targets import NVIDIA
from ikp.core import abi
from ikp.core.abi import Kind, Language, PayloadType
from ikp.core.segment import Spec
from ikp.errors import KernelError
from ikp.plugins import TritonTarget
from ikp.probing import Untyped
from ikp.targets import ptx, ptx_slot
from ikp.targets.ptx import Asm
from ikp.verbs.dsl import (
    DslValue,
    OpenRange,
    Payload,
    Place,
    Region,
    Unrecorded,
    constant_payload,
    constant_region,
    not_a_buffer,
    not_a_payload,
    not_a_region,
    signed,
)
from ikp.verbs.inline_ptx import PtxRecorder, comment, record
from ikp.verbs.off import Off


def compiling(semantic: Untyped, language: Language = Language.TRITON) -> Compiled | Off:
    """Return the adapter of the kernel that Triton traces with ``semantic``, for its GPU."""
    if not TRITON.has(VERBS):
        return Off(lambda: tl.constexpr(0))
    if semantic.builder.options.backend_name != NVIDIA:
        return ForTarget(semantic, language)
    return Compiled(semantic, language)


class Compiled(PtxRecorder):
    """The ``Dsl`` of one function that Triton traces with ``semantic``."""

    def __init__(self, semantic: Untyped, language: Language = Language.TRITON) -> None:
        self._semantic, self._language = semantic, language

    def init(self, prof: DslValue) -> None:
        """Declare the cursor and write the headers; remember how this kernel records."""
        if self.plain(prof) is None:
            state.begin(self._semantic, state.TritonRecording(None))
            return
        spec = self._checked(_spec(prof))
        state.begin(self._semantic, state.TritonRecording(spec))
        self._emit(self._set_up(spec), [prof[0], prof[1]])

    def region(self, value: DslValue, verb: str) -> Region:
        """Accept a constant, or a scalar integer tensor."""
        value = self.plain(value)
        if _is_scalar(value) and value.dtype.is_int():
            return Region(None, runtime=value)
        known = constant_region(value)
        if known is None:
            raise not_a_region(verb, _describe(value))
        return known

    def payload(self, value: DslValue, verb: str) -> Payload:
        """Accept a constant, or a scalar tensor of at most 32 bits."""
        value = self.plain(value)
        if _is_scalar(value):
            return Payload(_type_of(value, verb), value)
        known = constant_payload(value, verb)
        if known is None:
            remedy = "Reduce a block to a scalar first, for example with tl.max."
            raise not_a_payload(verb, _describe(value), remedy)
        return known

    def is_condition(self, value: DslValue) -> bool:
        """Accept a scalar boolean or integer tensor, or a constant."""
        return isinstance(value, int) or (_is_scalar(value) and value.dtype.is_int())

    def is_index(self, value: DslValue) -> bool:
        """Accept an integer, or a scalar integer tensor of at most 32 bits."""
        if isinstance(value, int):
            return 0 <= value < 1 << 31
        scalar = _is_scalar(value) and value.dtype.is_int()
        return bool(scalar and value.dtype.primitive_bitwidth <= 32)

    def condition(self, value: DslValue) -> DslValue:
        """Return an int32 tensor."""
        if value.dtype.primitive_bitwidth > 1:
            value = self._semantic.not_equal(value, self._semantic.to_tensor(0))
        return self._semantic.cast(value, tl.int32)

    def index(self, value: DslValue) -> DslValue:
        """Return a constant as it is, a tensor as int32."""
        return value if isinstance(value, int) else self._semantic.cast(value, tl.int32)

    def both(self, one: DslValue, other: DslValue) -> DslValue:
        """Return an int32 tensor."""
        return self._semantic.and_(one, other)

    def open(self, region: object, payload: object, given: Payload) -> OpenRange:
        """Read the clock."""
        return self._range(region, payload, given, self._read_clock(self.region(region, "start")))

    def token(self, region: object, payload: object, given: Payload, *, opened: bool) -> OpenRange:
        """Read the clock for a range; the start word of none is 0."""
        known = self.region(region, "start")
        start = self._read_clock(known) if opened else self._no_clock()
        made = self._range(region, payload, given, start)
        return replace(made, opened=self._semantic.to_tensor(int(opened)))

    def unrecorded(self, region: object, payload: object, given: Payload) -> OpenRange:
        """Return a range whose start is 0, with dtypes in the place of other tensors.

        Triton takes a variable for changed by a branch only if its tensors are others. No code
        reads the 0, so the compiler removes it.
        """
        region, payload = self.plain(region), self.plain(payload)
        if _is_scalar(region):
            region = Unrecorded(str(region.dtype))
        start = self._semantic.to_tensor(0)
        if given.type is PayloadType.NONE:
            return OpenRange(region, start, None)
        if _is_scalar(payload):
            return OpenRange(region, start, Unrecorded(str(payload.dtype)))
        dtype = "int1" if isinstance(payload, bool) else _CONSTANTS[given.type]
        return OpenRange(region, start, Unrecorded(dtype))

    def _range(self, region: object, payload: object, given: Payload, start: DslValue) -> OpenRange:
        """Return an open range, in which a constant payload is a tensor.

        So a token opened with ``0`` before a loop has the type of one opened with its variable.
        """
        payload = self.plain(payload)
        if given.type is not PayloadType.NONE and not _is_scalar(payload):
            payload = self._semantic.to_tensor(payload)
        return OpenRange(self.plain(region), start, payload)

    def context(self, ranges: tuple[OpenRange, ...]) -> Context:
        """Return a value that Triton carries."""
        return context(ranges)

    def ranges(self, ctx: object) -> tuple[OpenRange, ...] | None:
        """Return the open ranges of a context; None if it isn't one."""
        return ctx.ranges if isinstance(ctx, Context) else None

    def plain(self, value: DslValue) -> DslValue:
        """Return the Python value of a ``tl.constexpr``."""
        return value.value if isinstance(value, tl.constexpr) else value

    def _checked(self, spec: Spec) -> Spec:
        """Return the spec, if a kernel for this GPU can record like that."""
        return spec

    def _set_up(self, spec: Spec) -> ptx.Asm:
        return ptx_slot.init(spec, self._language)

    def _no_clock(self) -> DslValue:
        zero = self._semantic.to_tensor(0)
        wide = self.spec().clock.bits > abi.WORD_BITS
        return self._semantic.cast(zero, tl.int64) if wide else zero

    def _emit(self, asm: ptx.Asm, args: list[DslValue]) -> DslValue:
        # is_pure=False makes it volatile: never dropped, merged, or moved across memory operations.
        return tl.inline_asm_elementwise(
            asm.code,
            asm.constraints,
            args,
            tl.int64 if asm.bits[0] == tl.int64.primitive_bitwidth else tl.int32,
            is_pure=False,
            pack=1,
            _semantic=self._semantic,
        )

    def _recording(self, verb: str) -> Spec | None:
        return state.current(self._semantic, verb)

    def _value(self, value: DslValue) -> DslValue:
        return self._semantic.to_tensor(value)

    def _runtime_tag(self, base: int, number: DslValue) -> DslValue:
        known = self._semantic.to_tensor(signed(base))
        number = self._semantic.cast(number, tl.int32)
        mask = self._semantic.to_tensor(abi.MAX_USER_REGION)
        return self._semantic.or_(self._semantic.and_(number, mask), known)

    def _word(self, payload: Payload) -> DslValue:
        if isinstance(payload.value, int):
            return self._semantic.to_tensor(signed(payload.value))
        if payload.type is PayloadType.F32:
            wide = self._semantic.cast(payload.value, tl.float32)
            return self._semantic.bitcast(wide, tl.int32)
        dtype = tl.int32 if payload.type is PayloadType.I32 else tl.uint32
        return self._semantic.cast(payload.value, dtype)


_CONSTANTS = {PayloadType.I32: "int32", PayloadType.U32: "uint32", PayloadType.F32: "fp32"}
"""The dtypes that Triton gives constants, by what they are as payloads."""


def _is_scalar(value: object) -> TypeGuard[DslValue]:
    return isinstance(value, tl.tensor) and not value.type.is_block()


def _type_of(value: DslValue, verb: str) -> PayloadType:
    dtype = value.dtype
    if dtype.is_floating() and dtype.primitive_bitwidth <= 32:
        return PayloadType.F32
    if dtype.is_int() and dtype.primitive_bitwidth <= 32:
        return PayloadType.I32 if dtype.is_int_signed() else PayloadType.U32
    raise KernelError(
        f"the payload of ikp.{verb} has type {dtype}, which does not fit in 32 bits: convert it, "
        f"for example with x.to(tl.{'float32' if dtype.is_floating() else 'int32'})."
    )


def _describe(value: DslValue) -> str:
    if isinstance(value, tl.tensor):
        return f"a tensor of type {value.type} (its value is known only at run time)"
    return repr(value)


def _spec(prof: DslValue) -> Spec:
    try:
        spec = Spec.parse(prof[2].value)
    except (TypeError, IndexError, ValueError, AttributeError) as error:
        raise not_a_buffer(str(getattr(prof, "type", prof))) from error
    if spec.device != "cuda":
        raise KernelError(
            "the buffer passed to this kernel lies in CPU memory, but the kernel is compiled for a "
            "GPU. Give the session the kernel's device: ikp.profile(device='cuda'); or run the "
            "kernel in Triton's interpreter (TRITON_INTERPRET=1 before triton is imported)."
        )
    return spec


class ForTarget(Compiled):
    """The ``Dsl`` whose verbs emit a target's assembly, with the operands that PTX takes."""

    def __init__(self, semantic: Untyped, language: Language = Language.TRITON) -> None:
        super().__init__(semantic, language)
        self._options: Untyped = semantic.builder.options

    @property
    def _target(self) -> TritonTarget:
        return gpu_targets.target(self._options.backend_name)

    def store_range(self, region: Region, start: DslValue, payload: Payload, place: Place) -> None:
        """Read the clock and store one range record."""
        asm = self._target.end(record(region, Kind.RANGE, payload.type, place))
        tag = self._tag(Kind.RANGE, payload.type, region, place)
        self._emit(asm, [*tag, start, self._word(payload), *self._place(place)])

    def store_instant(self, region: Region, payload: Payload, place: Place) -> None:
        """Read the clock and store one instant record."""
        asm = self._target.instant(record(region, Kind.INSTANT, payload.type, place))
        tag = self._tag(Kind.INSTANT, payload.type, region, place)
        self._emit(asm, [*tag, self._word(payload), *self._place(place)])

    def store_role(self, region: Region) -> None:
        """Write the warp's role to its slot's header."""
        self._emit(self._target.role(region.number or 0, comment(region)), [])

    def store_whole(self, region: Region) -> None:
        """Have the kernel's finish record a range from init to finish."""
        self._emit(self._target.whole(comment(region)), [])

    def finish(self) -> None:
        """Write the counts and the second clock anchor."""
        self._emit(self._target.finish(), [])

    def _checked(self, spec: Spec) -> Spec:
        return self._target.checked(spec, self._options.arch)

    def _set_up(self, spec: Spec) -> Asm:
        return self._target.init(spec, self._language)

    def _read_clock(self, region: Region) -> DslValue:
        return self._emit(self._target.start(comment(region)), [])
