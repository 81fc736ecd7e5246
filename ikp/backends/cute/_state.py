"""The state of each CuTe kernel while it is traced: ``Spec``, totals, places, open ranges as value.

CuTe runs a kernel's Python while it builds the kernel's operation, helpers inlined. The operation
around the insertion point identifies the kernel. CuTe carries ``CuteContext``, the value of the
open ranges, through dynamic loops and branches.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import cache

import cutlass

from ikp.backends.cute import _foreign as foreign
from ikp.core.segment import Spec
from ikp.errors import KernelError
from ikp.probing import Untyped
from ikp.targets.ptx_totals import Counter
from ikp.verbs.dsl import DslValue, OpenRange, describe_context, init_twice, no_init


class CuteContext:
    """The ranges that are open, innermost last; also a token, which is a context of one.

    Implements the DSL's protocol for dynamic values: its run-time parts are the start words, and
    regions and payloads that are known only at run time.
    """

    def __init__(self, ranges: tuple[OpenRange, ...]) -> None:
        self.ranges = ranges

    def __extract_mlir_values__(self) -> list[DslValue]:
        return [part.ir_value() for r in self.ranges for part in _dynamic(r)]

    def __new_from_mlir_values__(self, values: list[DslValue]) -> CuteContext:
        left = iter(values)
        ranges = [
            OpenRange(
                *(
                    type(part)(next(left)) if isinstance(part, cutlass.Numeric) else part
                    for part in r.parts
                )
            )
            for r in self.ranges
        ]
        return context(tuple(ranges))


def context(ranges: tuple[OpenRange, ...]) -> CuteContext:
    """Return a context of the class made for these open ranges.

    CuTe compares the Python classes of the values that a loop or a branch carries, and the number
    of their run-time values. The names of regions are in the class alone, and where nothing is
    recorded there are no run-time values. So one class for each set of open ranges makes an
    unbalanced loop an error.
    """
    kinds = tuple(tuple(map(_kind, each.parts)) for each in ranges)
    made: CuteContext = _class_of(kinds, describe_context(ranges))(ranges)
    return made


def kind_of(value: cutlass.Numeric) -> str:
    """Return the kind and width of a run-time value: equal for all values of one variable."""
    return f"{'f' if type(value).is_float else 'i'}{type(value).width}"


@cache
def _class_of(kinds: tuple[object, ...], text: str) -> type[CuteContext]:
    return type(text, (CuteContext,), {"kinds": kinds})


def _kind(part: DslValue) -> object:
    return (kind_of(part),) if isinstance(part, cutlass.Numeric) else part


def _dynamic(opened: OpenRange) -> list[DslValue]:
    return [part for part in opened.parts if isinstance(part, cutlass.Numeric)]


_KERNEL_OPERATIONS = ("cuda.kernel", "gpu.func")


@dataclass(slots=True)
class CuteRecording:
    """The spec of a kernel, and the totals it has so far. ``init`` is the operation of ``init``.

    ``places`` has the source line of each operation that opens a range.
    """

    spec: Spec
    init: Untyped = None
    counters: set[Counter] = field(default_factory=set)
    places: dict[int, str] = field(default_factory=dict)


_recordings: weakref.WeakKeyDictionary[object, dict[int, CuteRecording | None]] = (
    weakref.WeakKeyDictionary()
)


def tracing() -> bool:
    """Return whether CuTe traces code now, a kernel's or a host function's."""
    try:
        return foreign.insertion_point() is not None
    except ValueError:
        return False


def kernel(verb: str) -> int:
    """Return the hash of the operation of the kernel being traced, which identifies it.

    Raises:
        KernelError: host code is being traced.
    """
    owner = foreign.insertion_point().block.owner
    while owner is not None:
        operation = owner.operation
        if operation.name in _KERNEL_OPERATIONS:
            return hash(operation)
        owner = operation.parent
    raise KernelError(
        f"ikp.{verb} is in host code: a @cute.jit function that launches kernels runs on the "
        f"CPU. Move it into the @cute.kernel function, or a function that the kernel calls."
    )


def begin(kernel: int, recording: CuteRecording | None) -> None:
    """Remember how the kernel being traced records; None where ``prof`` was None.

    Raises:
        KernelError: the kernel has called ``init`` before, or calls it where not every warp runs.
    """
    recordings = _recordings.setdefault(foreign.context(), {})
    if kernel in recordings:
        raise init_twice()
    if not _in_outermost_block():
        raise KernelError(
            "ikp.init is in a loop or a branch that is decided at run time. A warp that does "
            "not run it would record into memory that is not its own. Call ikp.init at the top of "
            "the kernel, before any dynamic if, for or while."
        )
    recordings[kernel] = recording


def current(kernel: int, verb: str) -> CuteRecording | None:
    """Return how the kernel being traced records; None where recording is off.

    Raises:
        KernelError: no ``init`` came before.
    """
    recordings = _recordings.get(foreign.context(), {})
    if kernel not in recordings:
        raise no_init(verb)
    return recordings[kernel]


def place_of(operation: Untyped) -> str:
    """Return the source line of the verb that made an operation; "" if it is not known."""
    found = _recordings.get(operation.context, {}).values()
    places = (each.places.get(hash(operation)) for each in found if each)
    return next((place for place in places if place), "")


def _in_outermost_block() -> bool:
    return foreign.insertion_point().block.owner.operation.name in _KERNEL_OPERATIONS
