"""``ikp_build.h``: the record ABI and the regions of one build, as C++.

Every number comes from ``ikp.plugins.abi``; ``ikp.cuh`` uses them by name. The headers become
structs with their fields in place, so the C++ code writes ``slot->sm`` and knows no offset.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from ikp.plugins import Spec, abi, launch_fields

_CONSTANTS = (
    "MAGIC",
    "ABI_VERSION",
    "ALIGNMENT",
    "KIND_SHIFT",
    "PAYLOAD_SHIFT",
    "MAX_USER_REGION",
)
_ENUMS = (
    abi.Kind,
    abi.PayloadType,
    abi.ClockKind,
    abi.OverflowMode,
    abi.SlotState,
    abi.Language,
)
_STRUCTS = {
    "LaunchHeader": abi.LAUNCH_HEADER,
    "SlotHeader": abi.SLOT_HEADER,
    "Record": abi.RECORD,
    "WideRecord": abi.WIDE_RECORD,
}
_ORIGINS = {
    **launch_fields.sizes(
        ("gridDim.x", "gridDim.y", "gridDim.z"), ("blockDim.x", "blockDim.y", "blockDim.z")
    ),
    launch_fields.Origin.WARPS: "warps",
    launch_fields.Origin.SLOT_BYTES: "slot_bytes",
    launch_fields.Origin.GRID_ID: "grid_id",
    launch_fields.Origin.LAUNCHES: "launch->launches + 1",
}
"""The values of the launch header's words, in C++."""
_TYPES = {np.dtype("<u4"): "unsigned", np.dtype("<u8"): "unsigned long long"}


def header(spec: Spec | None, regions: Mapping[int, str]) -> str:
    """Return the text of ``ikp_build.h``. ``spec`` None makes every verb compile to nothing."""
    lines = [
        "// Generated from ikp.plugins.abi. Do not edit.",
        "#pragma once",
        "namespace ikp::abi {",
        *(_constant(name, getattr(abi, name)) for name in _CONSTANTS),
        *(line for enum in _ENUMS for line in _enum(enum)),
        *(line for name, dtype in _STRUCTS.items() for line in _struct(name, dtype)),
        "}",
        "namespace ikp::build {",
        f"inline constexpr bool RECORDING = {'true' if spec else 'false'};",
        *_choices(spec or Spec()),
        "struct NamedRegion { const char* name; unsigned id; };",
        "inline constexpr NamedRegion REGIONS[] = {",
        *(f"  {{{json.dumps(name, ensure_ascii=False)}, {n}u}}," for n, name in regions.items()),
        "  {nullptr, 0u},",
        "};",
        *_launch_header(spec or Spec()),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _constant(name: str, value: int) -> str:
    return f"inline constexpr unsigned {name} = {int(value)}u;"


def _choices(spec: Spec) -> Iterator[str]:
    yield _constant("CLOCK", spec.clock)
    yield _constant("OVERFLOW_MODE", spec.overflow)
    yield _constant("MIN_SLOT_BYTES", abi.min_slot_bytes(spec.overflow, spec.clock))
    wide = spec.clock.bits > abi.WORD_BITS
    yield f"using Record = abi::{'WideRecord' if wide else 'Record'};"
    yield f"using Ticks = unsigned {'long long' if wide else 'int'};"


def _launch_header(spec: Spec) -> Iterator[str]:
    """Yield the function by which one thread of a launch writes its header."""
    constants = {"clock": spec.clock, "overflow": spec.overflow, "language": abi.Language.OTHER}
    given = _ORIGINS | {name: f"{int(value)}u" for name, value in constants.items()}
    yield "__device__ __forceinline__ void write(abi::LaunchHeader* launch, unsigned warps,"
    yield "                                      unsigned slot_bytes, unsigned grid_id) {"
    for word in launch_fields.written(given):
        part = "" if word.part is None else f"[{word.part}]"
        value = launch_fields.value_of(word, given)
        yield f"  launch->{word.field}{part} = {value};"
    yield "}"


def _enum(enum: type[IntEnum]) -> Iterator[str]:
    yield f"namespace {enum.__name__} {{"
    yield from (f"  {_constant(member.name, member)}" for member in enum)
    yield "}"


def _struct(name: str, dtype: np.dtype[Any]) -> Iterator[str]:
    """Yield a struct of the same layout; the compiler checks the offsets, ours against its own."""
    yield f"struct alignas({abi.ALIGNMENT}) {name} {{"
    for field, (kind, *_) in dtype.fields.items():  # type: ignore[union-attr]
        length = f"[{kind.shape[0]}]" if kind.shape else ""
        yield f"  {_TYPES[kind.base]} {field}{length};"
    yield "};"
    yield f"static_assert(sizeof({name}) == {dtype.itemsize});"
    for field, (_, offset, *_) in dtype.fields.items():  # type: ignore[union-attr]
        yield f"static_assert(__builtin_offsetof({name}, {field}) == {offset});"
