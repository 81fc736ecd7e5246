"""Triton and Gluon kernels: compiled for NVIDIA and AMD GPUs; Triton also interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from triton import knobs

from ikp.backends import names
from ikp.backends.argument import Argument, argument
from ikp.backends.triton import hooks, trials
from ikp.core.plugins import INTERFACE
from ikp.core.regions import merge
from ikp.core.segment import Segment

if TYPE_CHECKING:
    from ikp.backends.triton.compiled import Compiled


def compiling(semantic: Any) -> Compiled:
    """Return the adapter of the kernel that Triton traces with ``semantic``, for its GPU."""
    from ikp.backends.triton.compiled import Compiled
    from ikp.backends.triton.compiled_amd import CompiledAmd

    amd = semantic.builder.options.backend_name == "hip"
    return CompiledAmd(semantic) if amd else Compiled(semantic)


class TritonBackend:
    """The host's side of the Triton verbs; installs the compiler hooks."""

    interface = INTERFACE

    def __init__(self) -> None:
        hooks.install()
        trials.install()

    def device_type(self) -> str:
        """Return "cpu" where Triton interprets kernels or there is no GPU."""
        import torch

        return "cuda" if torch.cuda.is_available() and not knobs.runtime.interpret else "cpu"

    def argument(self, segment: Segment) -> Argument:
        """Return the ``prof`` argument for one launch that records into ``segment``."""
        return argument(segment)

    def names(self) -> dict[int, str]:
        """Return the regions known from kernels traced or loaded in this process."""
        return merge([names.known(), hooks.loaded_names()])
