"""``Context``: open ranges as a value that Triton carries through loops, branches and helper calls.

Triton's own tuples can't carry a name: an assignment turns their constants into tensors. So the
functional verbs pass a value type of their own, on the same two base classes that Triton's tensors
and tuples have. Constants are in the type; start words and run-time payloads are the value's
tensors.
"""

from __future__ import annotations

import hashlib
from functools import cache

import triton.language as tl

from ikp.backends.triton import foreign
from ikp.probing import Untyped
from ikp.verbs.dsl import OpenRange, describe_context

_Value: Untyped
_Type: Untyped
_Value, _Type = foreign.value_classes()


class _ContextClass(type):
    """Prints a context's class as its open ranges, for Triton's messages about changed types."""

    ranges: tuple[OpenRange, ...]

    def __repr__(cls) -> str:
        return describe_context(cls.ranges)


class Context(_Value, metaclass=_ContextClass):  # type: ignore[misc]
    """The ranges that are open, innermost last; also a token, which is a context of one."""

    ranges: tuple[OpenRange, ...] = ()

    def __init__(self, ranges: tuple[OpenRange, ...]) -> None:
        self.ranges = ranges
        self.type = _ContextType(_types(ranges))

    def __repr__(self) -> str:
        return repr(type(self))

    def _flatten_ir(self, handles: list[object]) -> None:
        handles.extend(
            part.handle for r in self.ranges for part in r.parts if isinstance(part, tl.tensor)
        )

    def _set_name(self, builder: object, name: str) -> None:
        """Triton names values for its debug output; there is nothing to name here."""


class _ContextType(_Type):  # type: ignore[misc]
    """The compile-time half of a context: its open ranges with dtypes for tensors."""

    def __init__(self, ranges: tuple[OpenRange, ...]) -> None:
        self.ranges = ranges

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ContextType) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        return repr(_class_of(self.ranges))

    def mangle(self) -> str:
        """Return a text for Triton's name mangling, unique per type and valid in an identifier."""
        return "ikp" + hashlib.blake2b(repr(self.ranges).encode(), digest_size=8).hexdigest()

    def _flatten_ir_types(self, builder: object, out: list[object]) -> None:
        for part in self._dtypes():
            part._flatten_ir_types(builder, out)

    def _unflatten_ir(self, handles: list[object], cursor: int) -> tuple[Context, int]:
        ranges = []
        for r in self.ranges:
            parts = list(r.parts)
            for i, part in enumerate(parts):
                if isinstance(part, tl.dtype):
                    parts[i], cursor = part._unflatten_ir(handles, cursor)
            ranges.append(OpenRange(*parts))
        return context(tuple(ranges)), cursor

    def _dtypes(self) -> list[Untyped]:
        return [part for r in self.ranges for part in r.parts if isinstance(part, tl.dtype)]


def context(ranges: tuple[OpenRange, ...]) -> Context:
    """Return a context of the class made for its type.

    Triton compares the Python classes of loop-carried values: one class per type makes an
    unbalanced loop an error that names the ranges.
    """
    made: Context = _class_of(_types(ranges))(ranges)
    return made


@cache
def _class_of(types: tuple[OpenRange, ...]) -> _ContextClass:
    return _ContextClass("Context", (Context,), {"ranges": types})


def _types(ranges: tuple[OpenRange, ...]) -> tuple[OpenRange, ...]:
    return tuple(
        OpenRange(*(part.type if isinstance(part, tl.tensor) else part for part in r.parts))
        for r in ranges
    )
