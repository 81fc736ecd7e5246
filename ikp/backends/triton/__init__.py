"""Triton and Gluon kernels: compiled for NVIDIA and AMD GPUs; Triton also interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton  # noqa: F401 - this backend is there only where Triton is

from ikp.backends.triton import foreign, hooks, trials
from ikp.backends.triton.foreign import INTERPRETER, TRITON, VERBS
from ikp.core.regions import merge
from ikp.core.segment import Segment
from ikp.plugins import INTERFACE
from ikp.probing import Untyped
from ikp.verbs import names
from ikp.verbs.argument import Argument, argument
from ikp.verbs.off import Off

if TYPE_CHECKING:
    from ikp.backends.triton.adapter import Compiled
    from ikp.verbs.dsl import Dsl


def compiling(semantic: Untyped) -> Compiled | Off:
    """Return the adapter of the kernel that Triton traces with ``semantic``, for its GPU."""
    if not TRITON.has(VERBS):
        from triton.language import constexpr

        return Off(lambda: constexpr(0))
    if semantic.builder.options.backend_name == "hip":
        from ikp.backends.triton.amd.adapter import CompiledAmd

        return CompiledAmd(semantic)
    from ikp.backends.triton.adapter import Compiled

    return Compiled(semantic)


def running(verb: str) -> Dsl | None:  # noqa: ARG001 - the interpreter takes them all
    """Return the adapter of the program that Triton interprets now; None where it compiles."""
    if not foreign.interprets():
        return None
    if not TRITON.has(INTERPRETER):
        return Off(tuple)
    from ikp.backends.triton import structure
    from ikp.backends.triton.interpreted import INTERPRETED

    # What the interpreter knows of the program it runs, it keeps when that has ended.
    return INTERPRETED if structure.running() else None


class TritonBackend:
    """The host's side of the Triton verbs; installs the hooks on Triton."""

    interface = INTERFACE

    def __init__(self) -> None:
        hooks.install()
        trials.install()

    def device_type(self) -> str:
        """Return "cpu" where Triton interprets kernels or there is no GPU."""
        import torch

        return "cuda" if torch.cuda.is_available() and not foreign.interprets() else "cpu"

    def argument(self, segment: Segment) -> Argument | None:
        """Return the ``prof`` argument for one launch that records into ``segment``.

        The compiler hooks go around those that were set since the session began.
        """
        hooks.install()
        feature = INTERPRETER if foreign.interprets() else VERBS
        return argument(segment) if TRITON.has(feature) else None

    def names(self) -> dict[int, str]:
        """Return the regions known from kernels traced or loaded in this process."""
        return merge([names.known(), hooks.loaded_names()])
