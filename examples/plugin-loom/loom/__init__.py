"""Loom, a toy language: a kernel is a Python function that runs once for each warp of each block.

It knows nothing of ikp::

    @loom.kernel(warps=4)
    def scale(x, factor):
        for i in loom.mine(len(x)):
            x[i] *= factor


    scale[8](x, 2.0)  # on 8 blocks
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

__all__ = ["Kernel", "Warp", "current", "kernel", "mine"]


@dataclass(frozen=True, eq=False)
class Warp:
    """A warp that runs: which one, of how many."""

    block: int
    blocks: int
    warp: int  # in its block
    warps: int


_running: ContextVar[Warp | None] = ContextVar("loom_warp", default=None)


def current() -> Warp | None:
    """Return the warp that runs here and now; None outside a kernel."""
    return _running.get()


def mine(count: int) -> range:
    """Return which of ``count`` elements are the running warp's."""
    warp = current()
    if warp is None:
        raise RuntimeError("loom.mine is called outside a kernel.")
    return range(warp.block * warp.warps + warp.warp, count, warp.blocks * warp.warps)


class Kernel:
    """A function marked with ``@loom.kernel``; ``kernel[blocks](...)`` launches it."""

    def __init__(self, function: Callable[..., None], warps: int) -> None:
        self.function, self.warps = function, warps

    def __getitem__(self, blocks: int) -> Callable[..., None]:
        return partial(self._run, blocks)

    def _run(self, blocks: int, *args: Any) -> None:
        for block in range(blocks):
            for warp in range(self.warps):
                token = _running.set(Warp(block, blocks, warp, self.warps))
                try:
                    self.function(*args)
                finally:
                    _running.reset(token)


def kernel(*, warps: int = 1) -> Callable[[Callable[..., None]], Kernel]:
    """Make a function a kernel whose blocks have so many warps."""
    return lambda function: Kernel(function, warps)
