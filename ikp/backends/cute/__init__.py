"""CuTe DSL kernels (nvidia-cutlass-dsl), compiled for NVIDIA GPUs."""

from __future__ import annotations

import cutlass  # noqa: F401 - this backend is there only where CuTe is

from ikp.backends import names
from ikp.backends.argument import Argument, argument
from ikp.core.plugins import INTERFACE
from ikp.core.segment import Segment


class CuteBackend:
    """The host's side of the CuTe verbs."""

    interface = INTERFACE

    def device_type(self) -> str:
        """Return "cuda": CuTe has no interpreter."""
        return "cuda"

    def argument(self, segment: Segment) -> Argument:
        """Return the ``prof`` argument for one launch that records into ``segment``."""
        return argument(segment)

    def names(self) -> dict[int, str]:
        """Return the regions of the kernels traced in this process."""
        return names.known()
