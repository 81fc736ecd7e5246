"""CuTe DSL kernels (nvidia-cutlass-dsl), compiled for NVIDIA GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cutlass  # noqa: F401 - this backend is there only where CuTe is

from ikp.backends.cute import foreign
from ikp.core.segment import Segment
from ikp.plugins import INTERFACE
from ikp.verbs import names
from ikp.verbs.argument import Argument, argument
from ikp.verbs.off import Off

if TYPE_CHECKING:
    from ikp.verbs.dsl import Dsl


def running(verb: str) -> Dsl | None:
    """Return the adapter of the kernel that CuTe traces now; None where it traces nothing."""
    if not foreign.recording():
        return None
    from ikp.backends.cute import state
    from ikp.backends.cute.adapter import Traced

    return Traced(verb) if state.tracing() else None


def off() -> Dsl | None:
    """Return the adapter of a kernel that can't be recorded; None where CuTe's kernels can."""
    if foreign.recording():
        return None
    from ikp.backends.cute.context import Context

    return Off(lambda: Context(()))


class CuteBackend:
    """The host's side of the CuTe verbs."""

    interface = INTERFACE

    def device_type(self) -> str:
        """Return "cuda": CuTe has no interpreter."""
        return "cuda"

    def argument(self, segment: Segment) -> Argument | None:
        """Return the ``prof`` argument for one launch that records into ``segment``."""
        return argument(segment) if foreign.recording() else None

    def names(self) -> dict[int, str]:
        """Return the regions of the kernels traced in this process."""
        return names.known()
