"""A Triton launch's arguments: their values as text for the trace, and names by addresses."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ikp.sass.cubins.attributes import Parameter

_FORMATS: Final = {
    **dict.fromkeys(("i1", "u1", "i8", "u8"), "<q"),
    **dict.fromkeys(("i16", "u16", "i32", "u32", "i64", "u64"), "<q"),
    "fp32": "<f",
    "fp64": "<d",
}
_NONE: Final = "constexpr"


def as_text(
    parameters: Sequence[Parameter],
    names: Sequence[str],
    types: Mapping[str, str],
    values: Sequence[object],
) -> str:
    """Return the values as a trace keeps them; see ``PARAMETERS``.

    Arguments behind one that is not understood (a tuple, a descriptor) are left out: how many
    parameters that is, is not known.

    Args:
        parameters: of the machine code, in their order.
        names: of the arguments, in their order.
        types: of the arguments; what is known when it is compiled has no parameter.
        values: the launcher's; the last ones are the arguments.
    """
    found: dict[str, str] = {}
    left = iter(parameters)
    for name, value in zip(names, values[len(values) - len(names) :], strict=True):
        if types.get(name) == _NONE:
            continue
        parameter, data = next(left, None), _bytes(types.get(name, ""), value)
        if parameter is None or data is None or len(data) < parameter.size:
            break
        found[str(parameter.offset)] = data[: parameter.size].hex()
    return json.dumps(found)


def _bytes(kind: str, value: object) -> bytes | None:
    """Return at least the bytes of a value; None where it is not understood."""
    if kind.startswith("*"):
        address = value.data_ptr() if hasattr(value, "data_ptr") else value
        return struct.pack("<Q", address & _ADDRESS) if isinstance(address, int) else None
    if kind not in _FORMATS or not isinstance(value, (int, float)):
        return None
    form = _FORMATS[kind]
    if form == "<q":
        return (int(value) & _ADDRESS).to_bytes(8, "little")
    return struct.pack(form, float(value))


_ADDRESS: Final = (1 << 64) - 1


def names(values: Sequence[object], names: Sequence[str]) -> dict[int, str]:
    """Return the names of arguments, by the addresses that they point to.

    Args:
        values: arguments of Triton's launcher; the last ones are the kernel's arguments.
        names: of the kernel's arguments.
    """
    pairs = zip(reversed(names), reversed(values), strict=False)
    found: dict[int, list[str]] = {}
    for name, value in reversed([*pairs]):
        for inner, address in _of(name, value):
            found.setdefault(address, []).append(inner)
    return {address: " and ".join(each) for address, each in found.items()}


def _of(name: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, (tuple, list)):
        for number, each in enumerate(value):
            yield from _of(f"{name}[{number}]", each)
    elif callable(getattr(value, "data_ptr", None)):
        yield name, int(value.data_ptr())
    elif hasattr(value, "base") and hasattr(value, "block_shape"):  # a tensor descriptor
        yield from _of(name, value.base)
