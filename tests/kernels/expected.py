"""What each kernel in ``control`` records per program: (name or id, payload), in order of ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Record = tuple[str | int, float | None]


def nested(pid: int, n: int) -> Iterator[Record]:
    for i in range(n):
        yield "step", i
        yield ("even", pid) if i % 2 == 0 else ("odd", None)
    yield "for", n
    for k in range(n, 0, -2):
        yield "while", k
    for j in range(2):
        yield "inner", j
        yield "inner", j + 100
        yield "outer", None
        yield "static", j


def functional(pid: int, n: int) -> Iterator[Record]:
    x = pid
    for i in range(n):
        x += i
        yield "callee", i
        yield i % 3, None
        if i == 1:
            yield "one", x
        yield "a", i * 10
    yield "opened in a helper", pid
    yield 5, None
    yield "all", n


def overlapping(pid: int, n: int) -> Iterator[Record]:
    yield "first", 1
    for i in range(n):
        yield "flight", i
    yield "flight", 99
    yield "second", 2.5


def sentinel(pid: int, n: int) -> Iterator[Record]:
    for i in range(n):
        if i != 1:  # ended in round 2
            yield "flight", i
    if n == 2:
        yield "flight", 1


def early_return(pid: int, n: int) -> Iterator[Record]:
    yield "first", pid
    if pid % 2 == 0:
        yield "rest", None


KERNELS: dict[str, Callable[[int, int], Iterator[Record]]] = {
    "nested": nested,
    "functional": functional,
    "overlapping": overlapping,
    "sentinel": sentinel,
    "early_return": early_return,
}

PAYLOADS: dict[str, tuple[float | None, str]] = {
    "none": (None, "NONE"),
    "i32": (-5, "I32"),
    "u32": (2**32 - 5, "U32"),
    "i8": (-5, "I32"),
    "u16": (2**16 - 5, "U32"),
    "bool": (1, "U32"),
    "f32": (1.25, "F32"),
    "f16": (1.25, "F32"),
    "negative": (-7, "I32"),
    "large": (2**32 - 1, "U32"),
    "float": (0.5, "F32"),
    "true": (1, "I32"),
    "range of int": (3_000_000_000, "U32"),
    "range of float": (-2.5, "F32"),
    "range of f32": (1.25, "F32"),
}
"""What ``control.payloads`` records: value and type by region."""
