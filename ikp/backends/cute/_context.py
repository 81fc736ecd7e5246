"""``Context``: open ranges as a value that CuTe carries through dynamic loops and branches."""

from __future__ import annotations

from functools import cache

import cutlass

from ikp.verbs.dsl import DslValue, OpenRange, describe_context


class Context:
    """The ranges that are open, innermost last; also a token, which is a context of one.

    Implements the DSL's protocol for dynamic values: its run-time parts are the start words, and
    regions and payloads that are known only at run time.
    """

    def __init__(self, ranges: tuple[OpenRange, ...]) -> None:
        self.ranges = ranges

    def __extract_mlir_values__(self) -> list[DslValue]:
        return [part.ir_value() for r in self.ranges for part in _dynamic(r)]

    def __new_from_mlir_values__(self, values: list[DslValue]) -> Context:
        left = iter(values)
        ranges = [
            OpenRange(
                *(
                    type(part)(next(left)) if isinstance(part, cutlass.Numeric) else part
                    for part in _parts(r)
                )
            )
            for r in self.ranges
        ]
        return context(tuple(ranges))


def context(ranges: tuple[OpenRange, ...]) -> Context:
    """Return a context of the class made for these open ranges.

    CuTe compares the Python classes of the values that a loop or a branch carries, and the number
    of their run-time values. The names of regions are in the class alone, and where nothing is
    recorded there are no run-time values. So one class for each set of open ranges makes an
    unbalanced loop an error.
    """
    kinds = tuple(tuple(map(_kind, _parts(each))) for each in ranges)
    made: Context = _class_of(kinds, describe_context(ranges))(ranges)
    return made


def kind_of(value: cutlass.Numeric) -> str:
    """Return the kind and width of a run-time value: equal for all values of one variable."""
    return f"{'f' if type(value).is_float else 'i'}{type(value).width}"


@cache
def _class_of(kinds: tuple[object, ...], text: str) -> type[Context]:
    return type(text, (Context,), {"kinds": kinds})


def _kind(part: DslValue) -> object:
    return (kind_of(part),) if isinstance(part, cutlass.Numeric) else part


def _parts(opened: OpenRange) -> tuple[DslValue, DslValue, DslValue, DslValue]:
    return opened.region, opened.start, opened.payload, opened.opened


def _dynamic(opened: OpenRange) -> list[DslValue]:
    return [part for part in _parts(opened) if isinstance(part, cutlass.Numeric)]
