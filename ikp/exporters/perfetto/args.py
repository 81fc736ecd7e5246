"""The trace's own arguments: each in the field for its type, texts interned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import ArgColumn
from ikp.core.trace import Trace
from ikp.exporters.perfetto.packets import argument
from ikp.exporters.perfetto.schema import FIRST_OWN_ARG, Annotation
from ikp.exporters.protobuf.shapes import Message
from ikp.exporters.protobuf.split import DamagedError
from ikp.exporters.protobuf.varints import (
    FIXED64,
    VARINT,
    WORD,
    Column,
    as_words,
    encoded_varint,
    tag,
    varints,
)

TYPES: Final = {"i": "int", "f": "float", "b": "bool", "U": "str"}
"""What numpy's kinds are called in the file."""
TAGS: Final = {
    "i": tag(Annotation.INT_VALUE, VARINT),
    "f": tag(Annotation.DOUBLE_VALUE, FIXED64),
    "b": tag(Annotation.BOOL_VALUE, VARINT),
    "U": tag(Annotation.STRING_VALUE_IID, VARINT),
}


@dataclass(frozen=True, slots=True)
class OwnArgs:
    """A trace's arguments, and the texts that occur in them: the i-th is interned as ``i + 1``."""

    columns: tuple[ArgColumn, ...]  # those of texts hold numbers of texts
    kinds: str  # numpy's kind of each
    texts: tuple[str, ...]

    @classmethod
    def of(cls, trace: Trace) -> OwnArgs:
        """Intern the texts of a trace's arguments."""
        texts: dict[str, int] = {}
        columns = [_interned(column, texts) for column in trace.args.values()]
        kinds = "".join(column.values.dtype.kind for column in trace.args.values())
        return cls(tuple(columns), kinds, tuple(texts))

    def messages(self, rows: NDArray[np.intp]) -> tuple[Message, ...]:
        """Return the arguments of the given events."""
        parts = zip(self.kinds, self.columns, strict=True)
        return tuple(
            argument(encoded_varint(iid), _column(column.take(rows)), TAGS[kind])
            for iid, (kind, column) in enumerate(parts, FIRST_OWN_ARG)
        )


def _interned(column: ArgColumn, texts: dict[str, int]) -> ArgColumn:
    if column.values.dtype.kind != "U":
        return column
    distinct, code = np.unique(column.values[column.given], return_inverse=True)
    iids = [texts.setdefault(text, len(texts) + 1) for text in distinct.tolist()]
    values = np.zeros(len(column), np.int64)
    values[column.given] = np.array(iids, np.int64)[code]
    return ArgColumn(values, column.given)


def _column(column: ArgColumn) -> Column:
    if column.values.dtype.kind == "f":
        words = column.values.view(np.uint64)[:, None]
        return Column(words, column.given * np.uint8(WORD))
    return varints(as_words(column.values)).where(column.given)


def described(args: Mapping[str, ArgColumn]) -> list[dict[str, str]]:
    """Return names and types, for the file's summary."""
    return [
        {"name": name, "type": TYPES[column.values.dtype.kind]} for name, column in args.items()
    ]


def rebuilt(
    told: list[dict[str, str]],
    found: list[tuple[NDArray[Any], NDArray[Any]]],
    texts: dict[int, str],
) -> dict[str, ArgColumn]:
    """Return arguments from what :func:`described` told, and the words of each event's.

    Raises:
        DamagedError: they don't fit together.
    """
    args = {}
    for one, (words, given) in zip(told, found, strict=True):
        kind = one.get("type")
        if kind == "str":
            values = np.array([texts.get(word, "") for word in words.tolist()], np.str_)
        elif kind == "float":
            values = words.view(np.float64)
        elif kind in {"int", "bool"}:
            values = words.view(np.int64).astype(np.int64 if kind == "int" else np.bool_)
        else:
            raise DamagedError(f"an argument has the type {kind!r}")
        args[one["name"]] = ArgColumn(values, given.astype(np.bool_))
    return args
