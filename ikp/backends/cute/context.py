"""Open ranges as a value that CuTe carries through dynamic loops and branches."""

from __future__ import annotations

from typing import Any

import cutlass

from ikp.backends.dsl import OpenRange


class Context:
    """The ranges that are open, innermost last; also a token, which is a context of one.

    Implements the DSL's protocol for dynamic values: its run-time parts are the start words, and
    regions and payloads that are known only at run time.
    """

    def __init__(self, ranges: tuple[OpenRange, ...]) -> None:
        self.ranges = ranges

    def __extract_mlir_values__(self) -> list[Any]:
        return [part.ir_value() for r in self.ranges for part in _dynamic(r)]

    def __new_from_mlir_values__(self, values: list[Any]) -> Context:
        left = iter(values)
        ranges = [
            OpenRange(
                *(
                    type(part)(next(left)) if isinstance(part, cutlass.Numeric) else part
                    for part in (r.region, r.start, r.payload)
                )
            )
            for r in self.ranges
        ]
        return Context(tuple(ranges))


def _dynamic(opened: OpenRange) -> list[Any]:
    parts = (opened.region, opened.start, opened.payload)
    return [part for part in parts if isinstance(part, cutlass.Numeric)]
