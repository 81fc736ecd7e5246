"""Larger inputs than torch's own tests have: kernels with many blocks, and several passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Arguments = tuple[Any, ...]
"""An input, further positional arguments, and arguments by name."""
Make = Callable[..., Any]
"""Returns a tensor of a shape."""


def larger(operator: Any, dtype: Any, grad: bool, device: str) -> Iterator[Arguments]:
    """Yield arguments for an operator: the first, further ones, and those by name.

    Args:
        operator: torch's OpInfo.
        dtype: torch's.
        grad: whether tensors require gradients.
        device: torch's.
    """
    from torch.testing import make_tensor

    low, high = _domain(operator)
    make = partial(make_tensor, device=device, dtype=dtype, low=low, high=high)
    make = partial(make, requires_grad=grad)
    kind = type(operator).__name__
    name = str(operator.name)
    if name in _OWN:
        yield from _OWN[name](make)
    elif kind == "UnaryUfuncInfo":
        yield make(1027, 1031), (), {}
        yield make(1000, 300)[:, ::3], (), {}
    elif kind == "BinaryUfuncInfo":
        yield make(511, 1031), (make(1031),), {}
    elif kind == "ReductionOpInfo":
        yield from _reduction(make)


def _domain(operator: Any) -> tuple[float | None, float | None]:
    low, high = getattr(operator, "domain", (None, None)) or (None, None)
    return low, high


def _reduction(make: Make) -> Iterator[Arguments]:
    for given in ({}, {"dim": -1}, {"dim": 0}):
        yield make(257, 4099), (), given


def _wide(make: Make) -> Iterator[Arguments]:
    yield make(257, 4099), (-1,), {}
    yield make(4099, 65), (0,), {}


def _one(*shape: int, **given: Any) -> Callable[[Make], Iterator[Arguments]]:
    def made(make: Make) -> Iterator[Arguments]:
        yield make(*shape), (), given

    return made


def _sorted(make: Make) -> Iterator[Arguments]:
    yield make(1 << 20), (), {}
    yield make(64, 5000), (-1,), {}
    yield make(2000, 30), (0,), {}


def _product(*shapes: tuple[int, ...]) -> Callable[[Make], Iterator[Arguments]]:
    def made(make: Make) -> Iterator[Arguments]:
        first, *rest = (make(*shape) for shape in shapes)
        yield first, tuple(rest), {}

    return made


def _convolution(*shapes: tuple[int, ...], **given: Any) -> Callable[[Make], Iterator[Arguments]]:
    def made(make: Make) -> Iterator[Arguments]:
        first, *rest = (make(*shape) for shape in shapes)
        yield first, tuple(rest), given

    return made


def _places(make: Make, high: int, *shape: int) -> Any:
    """Return indices, always the same."""
    import torch

    one = make(1)
    count = torch.Size(shape).numel()
    return ((torch.arange(count, device=one.device) * 7919) % high).reshape(shape)


def _gathered(make: Make) -> Iterator[Arguments]:
    yield make(2000, 300), (0, _places(make, 2000, 1500, 300)), {}


def _scattered(make: Make) -> Iterator[Arguments]:
    yield make(2000, 300), (0, _places(make, 2000, 1500, 300), make(1500, 300)), {}


def _by_rows(make: Make) -> Iterator[Arguments]:
    yield make(2000, 300), (0, _places(make, 2000, 3000)), {}


def _added_rows(make: Make) -> Iterator[Arguments]:
    yield make(2000, 300), (0, _places(make, 2000, 2000), make(2000, 300)), {}


def _embedded(make: Make) -> Iterator[Arguments]:
    yield make(5000, 256), (_places(make, 5000, 64, 100),), {}


def _embedded_bags(make: Make) -> Iterator[Arguments]:
    import torch

    starts = torch.arange(0, 6400, 100, device=make(1).device)
    yield make(5000, 256), (_places(make, 5000, 6400),), {"offsets": starts}


def _normed(make: Make) -> Iterator[Arguments]:
    yield make(1000, 4096), ((4096,), make(4096)), {}


def _attended(make: Make) -> Iterator[Arguments]:
    shape = (4, 8, 513, 64)
    yield make(*shape), (make(*shape), make(*shape)), {"is_causal": True}


def _definite(make: Make) -> Iterator[Arguments]:
    import torch

    half = make(3, 257, 257).detach()
    whole = half @ half.mH + 257 * torch.eye(257, device=half.device, dtype=half.dtype)
    yield whole.requires_grad_(make(1).requires_grad), (), {}


def _systems(make: Make) -> Iterator[Arguments]:
    for matrix, _, _ in _definite(make):
        yield matrix, (make(3, 257, 65),), {}


def _classes(make: Make) -> Iterator[Arguments]:
    yield make(4000, 1009), (_places(make, 1009, 4000),), {}


_FOURIER = {
    f"fft.{name}": _one(33, 1000) if "2" not in name else _one(9, 96, 100)
    for name in (
        *("fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "rfft", "rfft2", "rfftn"),
        *("irfft", "irfft2", "irfftn", "hfft", "ihfft"),
    )
}
_SCANS = dict.fromkeys(
    ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "softmax", "log_softmax"), _wide
)
_ORDERED = dict.fromkeys(("sort", "argsort", "mode", "median", "kthvalue"), _wide)
_MATRICES = dict.fromkeys(
    (
        *("linalg.qr", "linalg.lu_factor", "linalg.inv", "linalg.det", "linalg.slogdet"),
        *("linalg.svd", "matrix_exp", "geqrf", "linalg.cholesky", "linalg.eigh"),
    ),
    _definite,
)
_OWN: dict[str, Callable[[Make], Iterator[Arguments]]] = {
    **_FOURIER,
    **_SCANS,
    **_ORDERED,
    **_MATRICES,
    "sort": _sorted,
    "argsort": _sorted,
    "msort": _one(100_003),
    "topk": lambda make: iter([(make(64, 5000), (17,), {}), (make(300_000), (1000,), {})]),
    "kthvalue": lambda make: iter([(make(64, 5000), (17,), {})]),
    "unique": _one(300_000),
    "unique_consecutive": _one(300_000),
    "nonzero": _one(300, 1000),
    "count_nonzero": _one(300, 1000),
    "bernoulli": lambda make: iter([(make(300, 1000).detach().abs().clamp(0, 1), (), {})]),
    "histc": _one(300_000, bins=100),
    "matmul": _product((515, 1032), (1032, 776)),
    "mm": _product((515, 1027), (1027, 770)),
    "bmm": _product((8, 257, 136), (8, 136, 520)),
    "mv": _product((2000, 1031), (1031,)),
    "dot": _product((300_000,), (300_000,)),
    "outer": _product((1000,), (1031,)),
    "addmm": _product((515, 776), (515, 1032), (1032, 776)),
    "addmv": _product((2000,), (2000, 1031), (1031,)),
    "baddbmm": _product((8, 257, 520), (8, 257, 136), (8, 136, 520)),
    "cdist": _product((300, 65), (400, 65)),
    "kron": _product((30, 40), (50, 30)),
    "nn.functional.linear": _product((515, 1032), (776, 1032), (776,)),
    "nn.functional.conv1d": _convolution((8, 32, 1000), (64, 32, 5), padding=2),
    "nn.functional.conv2d": _convolution((8, 32, 56, 56), (64, 32, 3, 3), padding=1),
    "nn.functional.conv3d": _convolution((2, 16, 16, 20, 20), (32, 16, 3, 3, 3), padding=1),
    "nn.functional.conv_transpose2d": _convolution((8, 32, 28, 28), (32, 64, 3, 3), stride=2),
    "nn.functional.avg_pool2d": _one(8, 32, 56, 56, kernel_size=3, stride=2),
    "nn.functional.max_pool2d": _one(8, 32, 56, 56, kernel_size=3, stride=2),
    "nn.functional.adaptive_avg_pool2d": _one(8, 32, 56, 56, output_size=7),
    "nn.functional.interpolate": _one(4, 16, 56, 56, scale_factor=2, mode="nearest"),
    "nn.functional.layer_norm": _normed,
    "nn.functional.rms_norm": _normed,
    "nn.functional.group_norm": lambda make: iter([(make(16, 64, 56, 56), (8,), {})]),
    "nn.functional.instance_norm": _one(16, 64, 56, 56),
    "nn.functional.scaled_dot_product_attention": _attended,
    "nn.functional.cross_entropy": _classes,
    "nn.functional.nll_loss": _classes,
    "nn.functional.embedding": _embedded,
    "nn.functional.embedding_bag": _embedded_bags,
    "nn.functional.dropout": _one(1000, 4099, p=0.3),
    "gather": _gathered,
    "scatter": _scattered,
    "scatter_add": _scattered,
    "index_select": _by_rows,
    "index_add": _added_rows,
    "index_copy": _added_rows,
    "linalg.solve": _systems,
    "cholesky_solve": lambda make: iter([(make(3, 257, 65), (make(3, 257, 257).tril(),), {})]),
    "flip": lambda make: iter([(make(300, 1031), ((0, 1),), {})]),
    "roll": lambda make: iter([(make(300, 1031), ((7, 11), (0, 1)), {})]),
    "cat": lambda make: iter([([make(300, 1031), make(200, 1031)], (), {"dim": 0})]),
    "tril": _one(1000, 1031),
    "triu": _one(1000, 1031),
    "logsumexp": _wide,
    "trapezoid": _one(300, 1031),
    "renorm": lambda make: iter([(make(300, 1031), (2, 0, 1.0), {})]),
}
"""By operator; elementwise ones and reductions have a way of their own."""
