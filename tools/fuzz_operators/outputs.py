"""What a program computed, as bits that outlive it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Output:
    """One array, or the text of anything else."""

    kind: str  # shape and type, or the text
    bits: Bits | None
    values: Any = None  # a numpy array of the same bits, where numpy has its type


def kept(made: Iterable[Any]) -> list[Output]:
    """Return arrays of torch, CuPy, JAX or numpy, and anything else, as bits on the host."""
    return [output for each in made for output in _outputs(each)]


def _outputs(each: Any) -> list[Output]:
    if type(each).__module__.partition(".")[0] == "torch" and hasattr(each, "layout"):
        return [_of_tensor(part) for part in _dense(each)]
    if hasattr(each, "get"):  # CuPy's
        each = each.get()
    if isinstance(each, np.ndarray) or hasattr(each, "__array__"):
        return [_of_array(np.asarray(each))]
    return [Output(repr(each), None)]


def _dense(tensor: Any) -> list[Any]:
    """Return the tensors that a sparse one is made of."""
    layout = str(tensor.layout)
    if layout == "torch.strided":
        return [tensor]
    if layout == "torch.sparse_coo":
        return [tensor._indices(), tensor._values()]  # noqa: SLF001 - as they are, not coalesced
    columns = layout in ("torch.sparse_csr", "torch.sparse_bsr")
    outer = tensor.crow_indices() if columns else tensor.ccol_indices()
    inner = tensor.col_indices() if columns else tensor.row_indices()
    return [outer, inner, tensor.values()]


def _of_tensor(tensor: Any) -> Output:
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
    kind = f"{tuple(tensor.shape)} {tensor.dtype}"
    bits = plain.view(torch.uint8).numpy().copy()
    try:
        values = plain.to(torch.float32) if tensor.dtype == torch.bfloat16 else plain
        return Output(kind, bits, values.numpy().copy())
    except TypeError:  # numpy has no such type
        return Output(kind, bits)


def _of_array(array: npt.NDArray[Any]) -> Output:
    plain = np.ascontiguousarray(array).reshape(-1)
    values = plain.copy() if plain.dtype.kind in "biufc" else None
    return Output(f"{array.shape} {array.dtype}", plain.view(np.uint8).copy(), values)


def difference(one: Sequence[Output], other: Sequence[Output]) -> str:
    """Say where two runs differ; "" where they are equal bit for bit."""
    if len(one) != len(other):
        return f"{len(one)} outputs and {len(other)}"
    found = (_between(number, *both) for number, both in enumerate(zip(one, other, strict=True)))
    return next(filter(None, found), "")


def _between(number: int, one: Output, other: Output) -> str:
    if one.kind != other.kind:
        return f"output {number}: {one.kind[:200]} and {other.kind[:200]}"
    if one.bits is None or other.bits is None or np.array_equal(one.bits, other.bits):
        return ""
    wrong = np.flatnonzero(one.bits != other.bits)
    text = f"output {number}, {one.kind}: {len(wrong)} of {len(one.bits)} bytes differ, "
    text += f"first at {wrong[0]}"
    largest = _largest(one.values, other.values)
    return text if largest is None else f"{text}; by {largest:.3g} of the largest value"


def _largest(one: Any, other: Any) -> float | None:
    """Return the largest difference of two arrays, relative to the largest finite value."""
    if one is None or other is None:
        return None
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return float("inf")
    finite = np.isfinite(one)
    scale = float(np.abs(one[finite]).max(initial=0.0)) or 1.0
    return float(np.abs(one[finite] - other[finite]).max(initial=0.0)) / scale
