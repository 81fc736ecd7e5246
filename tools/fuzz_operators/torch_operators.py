"""Torch's operators, from the list that its own tests use, and larger inputs for some."""

from __future__ import annotations

import re
import sys
import unittest
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from types import ModuleType
from typing import Any

from tools.fuzz_operators.cases import Case
from tools.fuzz_operators.larger import larger

DTYPES = ("float32", "bfloat16", "float64", "int64", "complex64")
_SEED = 7
_LOOKED_AT = 24
"""Samples of an operator among which the largest is looked for."""
_UNWRITTEN = re.compile(r"(new_)?empty|resize_|torch\.ops\.aten\._\w+_for_cpu")
"""Operators that return memory as it was, or that a GPU has not."""
_FIRST = (
    *("^sum$", "^amax", "^argmax", "^norm", "^bernoulli", "dropout$", "^randn$", "^normal"),
    *("^sort", "^topk", "^cumsum", "^logcumsumexp", "^unique", "^scatter", "^index_", "^nonzero"),
    *("conv2d", "conv_transpose2d", "^fft.fft", "^fft.irfft", "^linalg.cholesky", "^linalg.qr"),
    *("^linalg.svd", "^linalg.eigh", "^linalg.lu", "^matmul", "^bmm", "attention", "^softmax"),
    *("layer_norm", "batch_norm", "embedding", "interpolate", "grid_sample", "pool", "ctc_loss"),
    *("^sparse", "^histc", "^median", "^mode", "^masked_select", "^cdist", "^multinomial"),
)
"""Operators with the most different kernels."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The arguments of one call."""

    input: Any
    args: Sequence[Any] = ()
    kwargs: Any = None

    def output_process_fn_grad(self, made: Any) -> Any:
        """Return the outputs to start a backward run at: all."""
        return made


class TorchOperators:
    """Operators of ``op_db``, forward and, where they have it, backward.

    Args:
        dtypes: names of torch's types.
        samples: of an operator's own samples, how many: the first, and the largest ones.
        device: torch's.
    """

    def __init__(
        self, dtypes: Sequence[str] = DTYPES, samples: int = 2, device: str = "cuda"
    ) -> None:
        self._dtypes, self._samples, self._device = dtypes, samples, device

    def prepare(self) -> None:
        """Import torch, but not its list of operators: that initialises CUDA."""
        import torch  # noqa: F401

    @cached_property
    def _operators(self) -> dict[str, Any]:
        _expecttest()
        with _own_arguments():
            from torch.testing._internal.common_methods_invocations import op_db

        named: dict[str, Any] = {}
        for each in op_db:
            variant = f".{each.variant_test_name}" if each.variant_test_name else ""
            named[f"{each.name}{variant}"] = each
        return named

    def names(self) -> list[str]:
        """Return the operators, those with the most different kernels first."""
        found = [each for each in self._operators if not _UNWRITTEN.match(each)]
        return sorted(found, key=_rank)

    def cases(self, name: str) -> Iterator[Case]:
        """Yield the cases of an operator, of each type that it takes."""
        import torch

        operator = self._operators[name]
        taken = {*operator.dtypes, *operator.dtypesIfCUDA}
        for type_name in self._dtypes:
            dtype = getattr(torch, type_name)
            if dtype not in taken:
                continue
            for number, sample in enumerate(self._chosen(operator, dtype)):
                backward = any(each.requires_grad for each in _tensors(sample))
                label = f"{type_name} {number}{' and backward' if backward else ''}"
                yield Case(label, partial(_fresh, sample), partial(_call, operator, sample))

    def _chosen(self, operator: Any, dtype: Any) -> list[Any]:
        """Return the first sample, the largest ones, and larger ones of our own."""
        import torch

        torch.manual_seed(_SEED)
        differentiable = dtype.is_floating_point or dtype.is_complex
        grad = bool(operator.supports_autograd and differentiable)
        made = operator.sample_inputs(self._device, dtype, requires_grad=grad)
        try:
            own = list(islice(made, _LOOKED_AT))
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:  # noqa: BLE001 - the list has samples that this build can't make
            own = []
        rest = sorted(own[1:], key=_size, reverse=True)
        chosen = [*own[:1], *rest[: self._samples - 1]]
        return [*chosen, *(Sample(*each) for each in larger(operator, dtype, grad, self._device))]

    def wait(self) -> None:
        """Wait for the GPU."""
        import torch

        if self._device == "cuda":
            torch.cuda.synchronize()


def _rank(name: str) -> tuple[int, int]:
    places = (at for at, pattern in enumerate(_FIRST) if re.search(pattern, name))
    return next(places, len(_FIRST)), 0


def _tensors(sample: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves((sample.input, sample.args, sample.kwargs or {}))
    return [each for each in leaves if isinstance(each, torch.Tensor)]


def _size(sample: Any) -> int:
    return sum(int(each.numel()) for each in _tensors(sample))


def _fresh(sample: Any) -> tuple[Any, Any, Any]:
    """Return copies of a sample's arguments: an operator may write to them."""
    import torch
    from torch.utils._pytree import tree_map

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(value.requires_grad)

    made = tree_map(copied, (sample.input, sample.args, sample.kwargs or {}))
    torch.manual_seed(_SEED)
    return made  # type: ignore[no-any-return]


def _call(operator: Any, sample: Any, arguments: tuple[Any, Any, Any]) -> list[Any]:
    """Return what an operator computes, and its gradients."""
    import torch
    from torch.utils._pytree import tree_leaves

    first, args, kwargs = arguments
    leaves = [each for each in _tensors(Sample(first, args, kwargs)) if each.requires_grad]
    made = operator(first, *args, **kwargs)
    outputs: list[Any] = tree_leaves(made)
    if leaves:
        ends = tree_leaves(sample.output_process_fn_grad(made))
        ends = [each for each in ends if isinstance(each, torch.Tensor) and each.requires_grad]
        if ends:
            weights = [_weights(each) for each in ends]
            outputs += torch.autograd.grad(ends, leaves, weights, allow_unused=True)
    return outputs


def _weights(end: Any) -> Any:
    """Return gradients that differ from place to place."""
    import torch

    if end.layout != torch.strided:
        return torch.ones_like(end)
    places = torch.arange(end.numel(), device=end.device) % 17
    return (places.to(torch.float32) / 8 - 1).to(end.dtype).reshape(end.shape)


@contextmanager
def _own_arguments() -> Iterator[None]:
    """Keep the command line from torch's test library, which reads it as its own."""
    words = sys.argv
    sys.argv = words[:1]
    try:
        yield
    finally:
        sys.argv = words


def _expecttest() -> None:
    """Let torch's list be imported where a package is missing that only its tests use."""
    try:
        import expecttest  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:
        absent: Any = ModuleType("expecttest")
        absent.TestCase = unittest.TestCase
        sys.modules["expecttest"] = absent
